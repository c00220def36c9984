#include "decode/decoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "decode/accept.h"
#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/stopwatch.h"

namespace espalier {
namespace {

std::vector<Lane> make_lanes(KvCache& cache, int count, const Speculation& speculation) {
  check(!speculation.trees || !speculation.drafters, "trees that are known, and drafters too");
  std::vector<Lane> lanes;
  for (int i = 0; i < count; ++i)
    lanes.push_back({cache.create(), {}, speculation.drafters ? speculation.drafters() : DrafterSet()});
  return lanes;
}

// What the drafters want of the teacher.
std::vector<std::int64_t> taps_of(const DrafterSet& drafters) {
  std::vector<std::int64_t> taps;
  for (const auto& drafter : drafters) {
    const FeatureWishes wishes = drafter->wishes();
    if (wishes.taps.empty()) continue;
    if (!taps.empty() && taps != wishes.taps)
      throw InputError("--head: two EAGLE-3 heads that tap the teacher at different layers cannot draft together");
    taps = wishes.taps;
  }
  return taps;
}

WorkspaceShape workspace_shape(const DecoderChoices& choices, const DrafterSet& drafters) {
  return {.rows = choices.step_rows(),
          .outputs = choices.logit_rows(),
          .positions = choices.context,
          .tap_boundaries = taps_of(drafters),
          .form = choices.form};
}

std::size_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

Decoder::Decoder(const Transformer& model, const DecoderOptions& options, const Speculation& speculation)
    : model_(&model),
      clock_(speculation.budget ? speculation.budget->clock : steady_seconds),
      choices_(decoder_choices(model.config(), model.device(), options, speculation)),
      cache_(model.device(), model.kv_shape(options.kv_type), choices_.cache_positions, options.kv),
      lanes_(make_lanes(cache_, options.lanes, speculation)),
      teacher_(model, cache_, clock_,
               {.workspace = workspace_shape(choices_, lanes_[0].drafters),
                .tree_rows = choices_.tree_rows,
                .invariants = options.invariants}),
      trees_(choices_, static_cast<std::int32_t>(model.config().vocabulary), speculation.trees, clock_),
      budget_(make_budget(speculation)) {}

Decoder::~Decoder() = default;

// There is nothing to choose where a tree is its root alone.
RoundBudget Decoder::make_budget(const Speculation& speculation) {
  check(!speculation.trees || !speculation.budget, "trees that are known, and a budget that would cut them");
  if (!speculation.budget || max_rows(tree()) <= 1) return {};
  const auto buckets = device().row_buckets();
  const BudgetShape shape{.rows = static_cast<int>(choices_.tree_rows),
                          .buckets = {buckets.begin(), buckets.end()},
                          .drafters = static_cast<int>(lanes_[0].drafters.size())};
  return {*speculation.budget, shape, clock_,
          [&] { return teacher_.measure_times(choices_.tree_rows, speculation.budget->clock); }};
}

SequenceId Decoder::sequence(int lane) const {
  return lanes_.at(static_cast<std::size_t>(lane)).sequence;
}

// Back to what the drafters can go on from.
void Decoder::rewind(Lane& lane, std::int64_t length) {
  const std::int64_t kept = length;
  for (const auto& drafter : lane.drafters) length = std::min(length, drafter->resumable(kept));
  for (const auto& drafter : lane.drafters) drafter->rewind(length);
  cache_.truncate(lane.sequence, length);
  lane.committed.resize(static_cast<std::size_t>(length));
}

bool Decoder::prefill(Answer& answer, std::span<const std::int32_t> tokens) {
  const GenerateEvents& events = answer.request.events;
  Lane& lane = answer.lane;
  const std::int64_t total = std::ssize(tokens), first = lane.length();
  if (events.on_prefill) answer.ask(events.on_prefill, 0, total - first);
  while (lane.length() < total) {
    if (events.cancelled && answer.ask(events.cancelled)) return false;
    const std::int64_t begin_at = lane.length(), end = std::min(total, begin_at + choices_.prefill_rows);
    const StepOutput output = teacher_.prefill(lane, tokens, end, PromptLogits::last);
    std::vector<std::int32_t> tap_rows(static_cast<std::size_t>(end - begin_at));
    std::iota(tap_rows.begin(), tap_rows.end(), 0);
    lane.tell({.begin = begin_at,
               .tokens = std::span(lane.committed).subspan(static_cast<std::size_t>(begin_at)),
               .taps = output.taps,
               .rows = tap_rows,
               .hidden = output.hidden,
               .hidden_row = 0});
    if (end == total) teacher_.read_logits(0);  // the prompt has been read when they can be looked at
    if (events.on_prefill) answer.ask(events.on_prefill, end - first, total - first);
  }
  return true;
}

// From the prompt to the first token, or to the first round of an answer that has begun.
void Decoder::start(Answer& answer) {
  const auto& [prompt, options, events, answered] = answer.request;
  answer.path.assign(prompt.begin(), prompt.end());
  answer.path.insert(answer.path.end(), answered.begin(), answered.end());
  answer.round_path = answer.path.size();
  answer.result.tokens.assign(answered.begin(), answered.end());
  // The last token of the prompt is always computed again: its logits are what the first draw needs. The last one of an
  // answer is the root: its logits are the first round's.
  const auto before = static_cast<std::ptrdiff_t>(answer.path.size()) - (answered.empty() ? 0 : 1);
  const auto tokens = std::span(answer.path).first(static_cast<std::size_t>(before));
  rewind(answer.lane, static_cast<std::int64_t>(std::min(common_prefix(answer.lane.committed, tokens),
                                                         answered.empty() ? prompt.size() - 1 : tokens.size())));
  answer.result.reused_tokens = answer.lane.length();
  if (!prefill(answer, tokens)) {
    answer.finish = FinishReason::cancelled;
  } else if (answer.tokens_left() <= 0) {
    answer.finish = FinishReason::token_limit;
  } else if (answered.empty()) {
    answer.draw(teacher_.read_logits(0), context());
  }
  answer.result.prefill_seconds = answer.clock.seconds();
}

// The trees of the next round.
void Decoder::draft(std::span<Answer* const> answers) {
  const bool ask = budget_.begin_round(answers);
  for (Answer* answer : answers) {
    observed(*answer, teacher_, [&] {
      answer->begin_round();
      trees_.grow(*answer, budget_, ask);
    });
  }
  observed(answers, teacher_, [&] { budget_.cut(answers); });
}

void Decoder::verify(std::span<Answer* const> answers) {
  const StepOutput output = observed(answers, teacher_, [&] { return teacher_.verify(answers); });
  for (Answer* answer : answers) observed(*answer, teacher_, [&] { accept(*answer, output); });
}

// Walks the verified tree, commits the path and tells everybody.
void Decoder::accept(Answer& answer, const StepOutput& output) {
  Stopwatch clock(clock_);
  answer.stage = AnswerStage::accept;
  const std::vector<Visit> visits = walk(
      *answer.tree,
      [&](int node) {
        const LogitRow logits = teacher_.read_logits(answer.first_row + node);
        answer.times.verify += clock.lap();
        // A step has ended when the first of its logits can be looked at.
        if (answer.first_row + node == 0) budget_.observe_step(teacher_.step_rows(), answer.times.verify);
        const std::int32_t token = answer.draw(logits, context());
        answer.times.accept += clock.lap();
        return token;
      },
      [&](std::int32_t) { return answer.finish.has_value(); });
  answer.stage = AnswerStage::commit;
  commit(answer, visits, output);
  answer.times.commit = clock.lap();
  tell_round(answer, visits);
}

void Decoder::commit(Answer& answer, std::span<const Visit> visits, const StepOutput& output) {
  teacher_.commit(answer, visits);
  Lane& lane = answer.lane;
  const std::int64_t prefix = answer.tensors.prefix;
  std::vector<std::int32_t> rows;
  for (const Visit& visit : visits) rows.push_back(static_cast<std::int32_t>(answer.first_row + visit.node));
  if (answer.drafted)
    for (const auto& drafter : lane.drafters) drafter->end_round(*answer.tree, visits);
  lane.tell({.begin = prefix,
             .tokens = std::span(lane.committed).subspan(static_cast<std::size_t>(prefix)),
             .taps = output.taps,
             .rows = rows,
             .hidden = output.hidden,
             .hidden_row = rows.back()});
}

// Everybody who listens, and the result.
void Decoder::tell_round(Answer& answer, std::span<const Visit> visits) {
  budget_.learn(answer, visits);
  answer.count_round(visits);
  if (!answer.request.events.on_round) return;
  const Round round{.number = answer.result.rounds() - 1,
                    .prefix = answer.tensors.prefix,
                    .tree = *answer.tree,
                    .visits = visits,
                    .finish = answer.finish,
                    .times = answer.times,
                    .budget = budget_.told(answer, teacher_.step_rows()),
                    .kv = answer.kv,
                    .form = form()};
  answer.ask(answer.request.events.on_round, round);
}

// Rounds until every answer is complete. Trees that do not fit one step of the device take several.
void Decoder::run_rounds(std::vector<Answer>& answers) {
  while (true) {
    std::vector<Answer*> active;
    for (Answer& answer : answers)
      if (!answer.finish) active.push_back(&answer);
    if (active.empty()) return;
    draft(active);
    for (std::size_t begin_at = 0; begin_at < active.size();) {
      std::size_t end = begin_at;
      for (std::int64_t rows = 0; end < active.size(); ++end) {
        rows += active[end]->tree->size();
        if (rows > choices_.tree_rows) break;
      }
      verify(std::span(active).subspan(begin_at, end - begin_at));
      begin_at = end;
    }
    budget_.end_round(active);
  }
}

std::vector<GenerateResult> Decoder::generate(std::span<const GenerateRequest> requests) {
  check(requests.size() <= lanes_.size(), "{} requests for {} lanes", requests.size(), lanes_.size());
  for (const GenerateRequest& request : requests) check_request(request, limits());
  std::vector<Answer> answers;
  answers.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    answers.emplace_back(lanes_[i], requests[i], clock_);
    observed(answers.back(), teacher_, [&] { start(answers.back()); });
  }
  run_rounds(answers);
  std::vector<GenerateResult> results;
  for (Answer& answer : answers) {
    answer.result.finish_reason = *answer.finish;
    answer.result.decode_seconds = answer.clock.seconds() - answer.result.prefill_seconds;
    results.push_back(std::move(answer.result));
  }
  return results;
}

GenerateResult Decoder::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                                 const GenerateEvents& events) {
  return generate(GenerateRequest{.prompt = prompt, .options = options, .events = events});
}

GenerateResult Decoder::generate(const GenerateRequest& request) {
  return std::move(generate(std::span(&request, 1)).front());
}

void Decoder::score(std::span<const std::int32_t> tokens,
                    const std::function<void(std::int64_t, std::span<const float>)>& on_row) {
  check_tokens(tokens, limits());
  Lane& lane = lanes_[0];
  rewind(lane, 0);
  const std::int64_t total = std::ssize(tokens);
  for (std::int64_t begin_at = 0; begin_at < total; begin_at += choices_.scored_rows) {
    const std::int64_t end = std::min(total, begin_at + choices_.scored_rows);
    teacher_.prefill(lane, tokens, end, PromptLogits::every);
    for (std::int64_t p = begin_at; p < end; ++p) on_row(p, teacher_.read_logits(p - begin_at).all);
  }
}

}  // namespace espalier
