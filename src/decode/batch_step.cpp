// The part of a batch that carries out a step: prompts and trees are opened on branches, drafted, computed by the
// teacher together, accepted and committed.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "decode/accept.h"
#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/batch.h"
#include "decode/stopwatch.h"

namespace espalier {
namespace {

std::int64_t rows_of(std::span<const PromptPart> prompts) {
  std::int64_t rows = 0;
  for (const PromptPart& part : prompts) rows += part.rows();
  return rows;
}

// What is left of a step.
struct StepRoom {
  std::int64_t rows = 0;
  std::int64_t logit_rows = 0;  // of those, such that want logits

  // False: there is not enough.
  bool take(std::int64_t more, std::int64_t more_logits) {
    if (more > rows || more_logits > logit_rows) return false;
    rows -= more;
    logit_rows -= more_logits;
    return true;
  }
};

}  // namespace

// What is cached gives way to what is needed.
std::optional<Branch> Batch::begin(const Answer& answer, std::int64_t rows, std::int64_t written_from) {
  while (true) {
    std::optional<Branch> branch = cache_.begin(*answer.sequence, rows, std::min(written_from, answer.length));
    if (branch || index_.evict(1) == 0) return branch;
  }
}

std::vector<PromptPart> Batch::open_prompts(const BatchPlan& plan) {
  std::vector<PromptPart> parts;
  for (const auto& planned : plan.prompt) {
    PromptPart part{.answer = &answer(planned.id)};
    if (part.answer->failure) continue;
    bool opened = false;
    if (guarded(*part.answer, teacher_, [&] { opened = open_prompt(part, planned.rows); }) && opened)
      parts.push_back(part);
  }
  return parts;
}

// False: blocks are short, and it waits for the next step.
bool Batch::open_prompt(PromptPart& part, std::int64_t rows) {
  Answer& answer = *part.answer;
  // Where drafters want the feature of the last position that was reused, it is computed again, in a block of its own.
  for (bool again : {answer.again && choices_.step_rows > 1, false}) {
    part.begin = answer.length - (again ? 1 : 0);
    part.end = std::min({answer.target(), answer.length + rows, part.begin + choices_.step_rows});
    if (part.logit_rows() > 1) part.end = std::min(part.end, part.begin + choices_.scored_rows);
    if (part.end == answer.target() && answer.length + 1 < part.end && awaited(answer)) --part.end;
    answer.branch = begin(answer, part.end - answer.length, part.begin);
    if (answer.branch) break;
  }
  if (answer.branch) answer.again = false;
  return answer.branch.has_value();
}

std::vector<Answer*> Batch::open_trees(const BatchPlan& plan) {
  std::vector<Answer*> decoding;
  for (const auto& planned : plan.decoding) {
    Answer& opened = answer(planned.id);
    if (opened.failure || opened.finish) continue;
    opened.begin_round();
    if (guarded(opened, teacher_, [&] { open_tree(opened, planned.rows); })) decoding.push_back(&opened);
  }
  return decoding;
}

// With room for its tree, or, where blocks are short, for its root.
void Batch::open_tree(Answer& answer, std::int64_t rows) {
  const std::int64_t copied = cache_.counts().bytes_branched;
  const std::int64_t lacks_from = answer.lacks_from();
  answer.drafts_fit = rows >= rows_wanted(answer.request) && written_from(answer) == lacks_from;
  if (answer.drafts_fit) answer.branch = begin(answer, rows, lacks_from);
  if (!answer.branch) {
    answer.drafts_fit = false;
    answer.branch = begin(answer, 1, answer.length);
  }
  check(answer.branch.has_value(), "KV cache: no room for a row behind {} positions", answer.length);
  answer.kv = {.branched = cache_.counts().bytes_branched - copied};
}

void Batch::begin_rounds(std::span<Answer* const> answers, std::span<const PromptPart> prompts) {
  if (answers.empty()) return;
  guarded(answers, teacher_, [&] {
    budget_.begin_round(answers, draft_company(prompts), rows_of(prompts));
    for (Answer* answer : answers) answer->asks = answer->asks && answer->drafts_fit;
  });
}

// The trees of the step.
void Batch::draft(std::span<Answer* const> answers) {
  if (answers.empty()) return;
  guarded(answers, teacher_, [&] {
    trees_.grow(answers, drafters_, budget_);
    statistics_.draft_seconds += answers[0]->times.draft;
  });
}

// What decodes alone may stay on the device, everything else is driven from here. Trees and prompts that do not fit one
// step of the device take several.
void Batch::run_steps(std::span<Answer* const> answers, std::span<PromptPart> prompts) {
  begin_rounds(answers, prompts);
  const bool resident = may_stay_on_device(answers, prompts);
  const bool host = !resident || host_promises_more(answers);
  std::vector<Answer*> left;
  for (Answer* answer : answers)
    if (!answer->failure) left.push_back(answer);
  if (!host && !left.empty()) return run_resident(left);
  if (!resident) draft(left);
  std::erase_if(left, [](const Answer* answer) { return answer->failure != nullptr; });
  std::size_t tree = 0, prompt = 0;
  while (tree < left.size() || prompt < prompts.size()) {
    const std::size_t first_tree = tree, first_prompt = prompt;
    StepRoom room{.rows = choices_.step_rows, .logit_rows = choices_.logit_rows};
    while (tree < left.size() && room.take(left[tree]->tree->size(), left[tree]->tree->size())) ++tree;
    if (tree == left.size())
      while (prompt < prompts.size() && room.take(prompts[prompt].rows(), prompts[prompt].logit_rows())) ++prompt;
    run_teacher(std::span(left).subspan(first_tree, tree - first_tree),
                prompts.subspan(first_prompt, prompt - first_prompt));
  }
  if (!left.empty()) budget_.end_round(left);
}

void Batch::run_teacher(std::span<Answer* const> answers, std::span<PromptPart> prompts) {
  std::vector<Answer*> all(answers.begin(), answers.end());
  for (const PromptPart& part : prompts) all.push_back(part.answer);
  StepOutput output;
  if (!guarded(all, teacher_, [&] { output = teacher_.run(answers, prompts); })) return;
  const std::int64_t rows = teacher_.step_rows();
  statistics_.count_step(answers, prompts, rows_of_step(device(), rows) - rows);
  for (Answer* answer : answers) guarded(*answer, teacher_, [&] { accept(*answer, output); });
  for (const PromptPart& part : prompts)
    guarded(*part.answer, teacher_, [&] {
      score_prompt(part);
      commit_prompt(part, output);
      if (part.logits) begin_answer(part);
    });
  tell_all_told(all);
}

void Batch::tell_all_told(std::span<Answer* const> answers) {
  guarded(answers, teacher_, [&] {
    for (const auto& drafter : drafters_) drafter->all_told();
  });
}

// Walks the verified tree, commits the path and tells everybody.
void Batch::accept(Answer& answer, const StepOutput& output) {
  Stopwatch clock(clock_);
  answer.stage = AnswerStage::accept;
  const std::vector<Visit> visits = walk(
      *answer.tree,
      [&](int node) {
        const LogitRow logits = teacher_.read_logits(answer.first_row + node);
        answer.times.verify += clock.lap();
        // A step has ended when the first of its logits can be looked at.
        if (answer.first_row + node == 0)
          budget_.observe_step(teacher_.step_rows(), teacher_.step_context(), answer.times.verify);
        const std::int32_t token = answer.draw(logits, context());
        answer.times.accept += clock.lap();
        return token;
      },
      [&](std::int32_t) { return answer.finish.has_value(); });
  answer.stage = AnswerStage::commit;
  commit(answer, visits,
         {.taps = output.taps, .hidden = output.hidden, .first_tap = answer.first_tap, .first_row = answer.first_row});
  answer.times.commit = clock.lap();
  tell_round(answer, visits);
}

void Batch::commit(Answer& answer, std::span<const Visit> visits, const RoundFeatures& features) {
  const std::int64_t prefix = answer.length;
  for (std::size_t i = 0; i < answer.drafts.size(); ++i) {
    if ((answer.asked >> i & 1) == 0) continue;
    answer.drafts[i]->end_round({*answer.tree, visits, *answer.branch, features.drafted});
    answer.result.prediction += answer.drafts[i]->take_prediction_counts();
  }
  if (features.lasting) {
    teacher_.commit_in_place(answer, visits);
  } else {
    teacher_.commit(answer, visits);
  }
  if (!answer.drafts.empty()) tell_drafters(answer, prefix, visits, features);
  publish(answer, PrefixIndex::Tail::keep, After::goes_on);
}

void Batch::tell_drafters(Answer& answer, std::int64_t prefix, std::span<const Visit> visits,
                          const RoundFeatures& features) {
  std::vector<std::int32_t> taps;
  for (const Visit& visit : visits) taps.push_back(static_cast<std::int32_t>(features.first_tap + visit.node));
  answer.tell({.begin = prefix,
               .tokens = answer.committed().subspan(static_cast<std::size_t>(prefix)),
               .taps = features.taps,
               .rows = taps,
               .hidden = features.hidden,
               .hidden_row = features.first_row + visits.back().node,
               .lasting = features.lasting});
}

// Everybody who listens, and the result.
void Batch::tell_round(Answer& answer, std::span<const Visit> visits) {
  budget_.learn(answer, visits);
  answer.count_round(visits);
  statistics_.count_round(*answer.tree, visits);
  const GenerateEvents& events = answer.request.events;
  if (events.on_round) answer.ask(events.on_round, round(answer, visits));
  if (events.on_step) answer.ask(events.on_step);
}

Round Batch::round(const Answer& answer, std::span<const Visit> visits) const {
  return {.number = answer.result.rounds() - 1,
          .prefix = answer.tensors.prefix,
          .tree = *answer.tree,
          .visits = visits,
          .finish = answer.finish,
          .times = answer.times,
          .budget = budget_.told(answer, teacher_.step_rows()),
          .kv = answer.kv,
          .form = form(),
          .resident = answer.resident};
}

void Batch::score_prompt(const PromptPart& part) {
  for (std::int64_t i = 0; i < part.scores; ++i) part.answer->score(teacher_.read_logits(part.first_score + i));
}

void Batch::commit_prompt(const PromptPart& part, const StepOutput& output) {
  Answer& answer = *part.answer;
  answer.branch->commit_length(part.end - answer.length);
  answer.branch.reset();
  answer.length = part.end;
  std::vector<std::int32_t> taps(static_cast<std::size_t>(part.rows()));
  std::iota(taps.begin(), taps.end(), static_cast<std::int32_t>(part.first_tap));
  answer.tell({.begin = part.begin,
               .tokens = answer.committed().subspan(static_cast<std::size_t>(part.begin)),
               .taps = output.taps,
               .rows = taps,
               .hidden = part.logits ? output.hidden : ConstView(),
               .hidden_row = part.logits.value_or(0)});
  publish(answer, PrefixIndex::Tail::keep, After::goes_on);
  const std::int64_t reused = answer.result.reused_tokens;
  const auto& told = answer.request.events.on_prefill;
  if (told && !answer.preempted && !part.logits) answer.ask(told, answer.length - reused, answer.target() - reused);
}

// From the prompt to the first token, or to the first round of an answer that has begun.
void Batch::begin_answer(const PromptPart& part) {
  Answer& answer = *part.answer;
  const bool again = std::exchange(answer.preempted, false);
  answer.phase = AnswerPhase::decoding;
  const LogitRow logits = teacher_.read_logits(*part.logits);  // the prompt has been read when they can be looked at
  const GenerateEvents& events = answer.request.events;
  const std::int64_t read = answer.length - answer.result.reused_tokens;
  const bool first = !std::exchange(answer.prompt_read, true);
  if (first) statistics_.count_prompt(answer);
  if (events.on_prefill && !again) answer.ask(events.on_prefill, read, read);
  if (events.on_prompt_logprobs && first && answer.request.options.prompt_logprobs >= 0)
    answer.ask(events.on_prompt_logprobs, answer.result.prompt_logprobs);
  if (answer.tokens_left() <= 0) {
    answer.finish = FinishReason::token_limit;
  } else if (answer.result.tokens.empty()) {
    answer.draw(logits, context());
    ++statistics_.answer_tokens;
  }
  if (first) answer.result.prefill_seconds = answer.clock.seconds();
  if (events.on_step && first) answer.ask(events.on_step);
}

}  // namespace espalier
