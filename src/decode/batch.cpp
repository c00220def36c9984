#include "decode/batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "decode/accept.h"
#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/row_choice.h"
#include "decode/step_timing.h"
#include "decode/stopwatch.h"

namespace espalier {
namespace {

// Requests beyond these learn of their hits when they come nearer to the front: looking at all in every step would cost
// the steps of those who run.
constexpr int kLookedUp = 64;

DrafterSet make_drafters(KvCache& cache, int sequences, const Speculation& speculation, std::int64_t branch_rows) {
  check(!speculation.trees || !speculation.drafters, "trees that are known, and drafters too");
  if (!speculation.drafters) return {};
  DrafterSet drafters = speculation.drafters(cache, sequences);
  for (const auto& drafter : drafters)
    check(branch_rows == 1 || drafter->round_rows() <= branch_rows,
          "drafter {}: rounds of {} rows, expected at most {}", drafter->name(), drafter->round_rows(), branch_rows);
  return drafters;
}

constexpr double kAimedShare = 0.9;             // of what others may wait: not every step takes what it should
constexpr double kLater = 0.5, kSooner = 0.05;  // shares of the newest in what is known of the lateness of steps

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
  return {.rows = choices.step_rows,
          .outputs = choices.logit_rows,
          .positions = choices.context + choices.branch_rows,
          .tap_boundaries = taps_of(drafters),
          .form = choices.form};
}

SequencePhase phase_of(const Answer& answer) {
  switch (answer.phase) {
    case AnswerPhase::waiting: return SequencePhase::waiting;
    case AnswerPhase::prompt: return SequencePhase::prompt;
    case AnswerPhase::decoding: return SequencePhase::decoding;
  }
  return SequencePhase::waiting;
}

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

Batch::Batch(const Transformer& model, const DecoderOptions& options, const Speculation& speculation)
    : model_(&model),
      clock_(speculation.budget ? speculation.budget->clock : steady_seconds),
      stall_seconds_(options.stall_seconds),
      parallel_(options.parallel),
      choices_(decoder_choices(model.config(), model.device(), options, speculation)),
      cache_(model.device(), model.kv_shape(options.kv_type), choices_.cache_positions, options.kv),
      index_(cache_),
      drafters_(make_drafters(cache_, options.parallel, speculation, choices_.branch_rows)),
      teacher_(model, cache_, clock_,
               {.workspace = workspace_shape(choices_, drafters_),
                .logit_rows = choices_.logit_rows,
                .invariants = options.invariants}),
      trees_(choices_, static_cast<std::int32_t>(model.config().vocabulary), speculation.trees, clock_),
      budget_(make_budget(speculation)) {
  for (const std::string& name : drafters()) statistics_.drafters.push_back({.name = name});
}

Batch::~Batch() = default;

// There is nothing to choose where a tree is its root alone. Who is alone has no prompt rows beside his own: then what
// steps cost is of no use to the scheduler either.
RoundBudget Batch::make_budget(const Speculation& speculation) {
  check(!speculation.trees || !speculation.budget, "trees that are known, and a budget that would cut them");
  if (!speculation.budget) return {};
  ChosenBudget chosen = *speculation.budget;
  chosen.cuts = chosen.cuts && max_rows(tree()) > 1;
  if (!chosen.cuts && parallel_ == 1) return {};
  const std::int64_t timed_rows =
      parallel_ == 1 ? choices_.tree_rows : std::max(choices_.tree_rows, std::min(choices_.step_rows, kTimedRows));
  const auto buckets = device().row_buckets();
  const BudgetShape shape{.rows = static_cast<int>(choices_.step_rows),
                          .tree_rows = static_cast<int>(choices_.tree_rows),
                          .buckets = {buckets.begin(), buckets.end()},
                          .drafters = static_cast<int>(drafters_.size())};
  return {chosen, shape, clock_, [&] { return teacher_.measure_times(timed_rows, chosen.clock); }};
}

// --- requests -------------------------------------------------------------------------------------------------------

PoolState Batch::pool() const {
  const std::int64_t block = cache_.block_size();
  return {.block_size = block,
          .all_blocks = pool_blocks(),
          .free_blocks = cache_.free_positions() / block,
          .evictable_blocks = index_.evictable()};
}

SchedulerLimits Batch::scheduler_limits() const {
  return {.parallel = parallel_,
          .prefill_rows = choices_.prefill_rows,
          .reserve = choices_.reserve,
          .stall_seconds = kAimedShare * stall_seconds_ - lateness_};
}

int Batch::rows_wanted(const GenerateRequest& request) const {
  return request.draft.drafts ? static_cast<int>(choices_.branch_rows) : 1;
}

RequestId Batch::submit(const GenerateRequest& request) {
  check_request(request, request_limits());
  const std::int64_t prompt = std::ssize(request.prompt) + std::ssize(request.answered);
  const std::int64_t more = std::min(request.options.max_tokens, context() - prompt);
  const int rows = rows_wanted(request);
  if (!fits(pool(), scheduler_limits(), prompt, more, rows))
    input_error("prompt and answer need {} positions, the cache has room for {}", prompt + more,
                capacity(pool(), scheduler_limits(), rows));
  answers_.push_back(std::make_unique<Answer>(next_id_, request, clock_));
  answers_.back()->drafters = drafters_for(request.draft);
  return next_id_++;
}

std::vector<std::string> Batch::drafters() const {
  std::vector<std::string> names;
  for (const auto& drafter : drafters_) names.emplace_back(drafter->name());
  return names;
}

SourceSet Batch::drafters_for(const DraftCaps& caps) const {
  SourceSet allowed = 0;
  if (!caps.drafts) return allowed;
  for (std::size_t i = 0; i < drafters_.size(); ++i)
    if (caps.drafters.empty() || std::ranges::find(caps.drafters, drafters_[i]->name()) != caps.drafters.end())
      allowed |= SourceSet{1} << i;
  return allowed;
}

void Batch::cancel(RequestId id) {
  for (const auto& answer : answers_)
    if (answer->id == id) answer->cancelled = true;
}

// Nobody listens to these any more.
void Batch::abandon(RequestId first, RequestId end) {
  for (const auto& answer : answers_) {
    if (answer->id < first || answer->id >= end) continue;
    answer->request.events = {};
    answer->cancelled = true;
  }
}

Answer& Batch::answer(RequestId id) {
  const auto found = std::ranges::lower_bound(answers_, id, {}, [](const auto& answer) { return answer->id; });
  check(found != answers_.end() && (*found)->id == id, "batch: no answer {}", id);
  return **found;
}

std::int64_t Batch::running() const {
  return std::ranges::count_if(answers_, [](const auto& answer) { return answer->running(); });
}

std::int64_t Batch::waiting() const {
  return std::ssize(answers_) - running();
}

// --- before a step --------------------------------------------------------------------------------------------------

bool Batch::step() {
  const Stopwatch clock(clock_);
  ask_whether_cancelled();
  end_answers();
  if (answers_.empty()) return false;
  share_prompts();
  const BatchPlan planned = plan();
  last_keys_ = planned.last_keys;
  for (RequestId id : planned.preempted) preempt(answer(id));
  for (RequestId id : planned.admitted) {
    Answer& admitted = answer(id);
    guarded(admitted, teacher_, [&] { admit(admitted); });
  }
  std::vector<PromptPart> prompts = open_prompts(planned);
  const std::vector<Answer*> decoding = open_trees(planned);
  run_steps(decoding, prompts);
  const double seconds = clock.seconds();
  statistics_.step_seconds += seconds;
  if (!decoding.empty()) learn_lateness(seconds);
  end_answers();
  return !answers_.empty();
}

// Beside the teacher's rows there are drafts, what drafters make of rows, and acceptance; and rows may cost more than
// they were measured to. Quick to believe in the worse: somebody waits for it.
void Batch::learn_lateness(double seconds) {
  const std::vector<double> known = budget_.step_seconds(teacher_.step_context());
  if (known.empty() || teacher_.step_rows() == 0) return;
  const double late = seconds - seconds_of_rows(known, teacher_.step_rows());
  lateness_ = std::max(0.0, lateness_ + (late > lateness_ ? kLater : kSooner) * (late - lateness_));
}

// Those who decode were asked after their last token.
void Batch::ask_whether_cancelled() {
  for (std::size_t i = 0; i < answers_.size(); ++i) {  // the asked may submit
    Answer& answer = *answers_[i];
    const auto& asked = answer.request.events.cancelled;
    if (asked && answer.phase != AnswerPhase::decoding)
      guarded(answer, teacher_, [&] { answer.cancelled = answer.ask(asked) || answer.cancelled; });
    if (answer.cancelled && !answer.failure) answer.finish = FinishReason::cancelled;
  }
}

BatchPlan Batch::plan() const {
  std::vector<SequenceState> states;
  std::vector<PromptState> prompts;  // of those before
  const bool admits = running() < parallel_;
  int looked_up = 0;
  for (const auto& answer : answers_) {
    states.push_back(state(*answer));
    const bool looks = !answer->running() && ++looked_up <= kLookedUp;
    if (looks) look_up(*answer, states.back());
    if (answer->failure || (answer->phase != AnswerPhase::prompt && !(looks && admits))) continue;
    PromptState prompt = prompt_state(*answer);
    prompt.has = std::max(prompt.has, states.back().cached);
    states.back().leader = leader_of(prompt, prompts);
    prompts.push_back(prompt);
  }
  const std::vector<double> seconds = step_seconds();
  return plan_batch({.sequences = states, .pool = pool(), .step_seconds = seconds, .last_keys = last_keys_},
                    scheduler_limits());
}

// Most rows of a step stand where the longest prompt is being read. Where nothing is known of the time that steps take,
// prompts are bounded by their rows alone.
std::vector<double> Batch::step_seconds() const {
  std::int64_t positions = 0, longest = 0;
  for (const auto& answer : answers_) {
    positions += answer->length;
    if (answer->phase == AnswerPhase::prompt) longest = std::max(longest, answer->length);
  }
  std::vector<double> seconds = budget_.step_seconds(std::max(longest, positions / std::ssize(answers_)));
  seconds.resize(static_cast<std::size_t>(choices_.step_rows));
  return seconds;
}

SequenceState Batch::state(const Answer& answer) const {
  SequenceState state{.id = answer.id,
                      .phase = phase_of(answer),
                      .target = answer.target(),
                      .rows_wanted = rows_wanted(answer.request),
                      .key = answer.request.key,
                      .priority = answer.request.priority,
                      .preempted = answer.preempted};
  if (!answer.running()) return state;
  state.length = answer.length;
  state.own_blocks = std::ranges::count_if(cache_.blocks(*answer.sequence),
                                           [&](std::int32_t block) { return cache_.tables().references(block) == 1; });
  state.copies = copies(answer, written_from(answer));
  return state;
}

// Blocks that others may read, and that a branch which writes from here on has to copy.
std::int64_t Batch::copies(const Answer& answer, std::int64_t from) const {
  const auto blocks = cache_.blocks(*answer.sequence).subspan(static_cast<std::size_t>(from / cache_.block_size()));
  return std::ranges::count_if(blocks, [&](std::int32_t block) { return !cache_.tables().writable(block); });
}

// Where its next branch begins to write: at what its drafters lack, unless that lies in more blocks of others than the
// pool could ever hold copies of; then it goes on without drafts.
std::int64_t Batch::written_from(const Answer& answer) const {
  if (answer.again) return answer.length - 1;
  const std::int64_t lacks_from = answer.lacks_from();
  const std::int64_t own = cache_.tables().blocks_for(answer.length + rows_wanted(answer.request));
  return own + copies(answer, lacks_from) <= pool_blocks() ? lacks_from : answer.length;
}

// It will be computed again, bit for bit, so nobody notices but by the time. What it leaves may serve it, or others.
void Batch::preempt(Answer& answer) {
  ++statistics_.preemptions;
  guarded(answer, teacher_, [&] { publish(answer, PrefixIndex::Tail::keep, After::leaves); });
  release(answer);
  answer.phase = AnswerPhase::waiting;
  answer.preempted = true;
}

void Batch::admit(Answer& answer) {
  answer.phase = AnswerPhase::prompt;
  answer.stage = AnswerStage::prefill;
  answer.sequence = cache_.create();
  if (!answer.preempted) answer.patience = first_patience(answer);
  open_drafts(answer);
  if (!answer.preempted && answer.reusable() > 0) statistics_.prefix_queries += answer.target();
  if (!reuse(answer)) answer.tell_reused(0);
  const auto& told = answer.request.events.on_prefill;
  if (told && !answer.preempted) answer.ask(told, 0, answer.target() - answer.length);
}

// Who waits will soon be company too. What a prediction says is likely.
Patience Batch::first_patience(const Answer& answer) const {
  const std::int64_t company = std::min<std::int64_t>(parallel_, std::ssize(answers_));
  return budget_.patience(answer.prediction.empty() ? static_cast<int>(company) : 1);
}

// Who is not asked is not told either: he would copy taps and compute rows for nobody.
void Batch::open_drafts(Answer& answer) {
  answer.tapped = false;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    Drafter& drafter = *drafters_[i];
    answer.drafts.emplace_back();
    if (!answer.guesses(i) && !drafter.needs_every_text()) continue;
    answer.drafts.back() = drafter.open(*answer.sequence, answer.prompt);
    answer.drafts.back()->predict(answer.prompt, answer.prediction);
    answer.tapped = answer.tapped || !drafter.wishes().taps.empty();
  }
  answer.rest(answer.rests());
}

// What is cached gives way to what is needed.
std::optional<Branch> Batch::begin(const Answer& answer, std::int64_t rows, std::int64_t written_from) {
  while (true) {
    std::optional<Branch> branch = cache_.begin(*answer.sequence, rows, std::min(written_from, answer.length));
    if (branch || index_.evict(1) == 0) return branch;
  }
}

// --- a step ---------------------------------------------------------------------------------------------------------

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

// The trees of the step.
void Batch::draft(std::span<Answer* const> answers, std::int64_t prompt_rows) {
  if (answers.empty()) return;
  guarded(answers, teacher_, [&] {
    budget_.begin_round(answers, prompt_rows);
    for (Answer* answer : answers) {
      answer->rest(!answer->asks && answer->rests());
      answer->asks = answer->asks && answer->drafts_fit;
    }
    trees_.grow(answers, drafters_, budget_);
    statistics_.draft_seconds += answers[0]->times.draft;
  });
}

// Trees and prompts that do not fit one step of the device take several.
void Batch::run_steps(std::span<Answer* const> answers, std::span<PromptPart> prompts) {
  draft(answers, rows_of(prompts));
  std::vector<Answer*> left;
  for (Answer* answer : answers)
    if (!answer->failure) left.push_back(answer);
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
  statistics_.count_step(answers, prompts, bucket_for(device(), rows) - rows);
  for (Answer* answer : answers) guarded(*answer, teacher_, [&] { accept(*answer, output); });
  for (const PromptPart& part : prompts)
    guarded(*part.answer, teacher_, [&] {
      score_prompt(part);
      commit_prompt(part, output);
      if (part.logits) begin_answer(part);
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
  commit(answer, visits, output);
  answer.times.commit = clock.lap();
  tell_round(answer, visits);
}

void Batch::commit(Answer& answer, std::span<const Visit> visits, const StepOutput& output) {
  const std::int64_t prefix = answer.length;
  for (std::size_t i = 0; answer.drafted && i < answer.drafts.size(); ++i) {
    if (!answer.guesses(i)) continue;
    answer.drafts[i]->end_round({*answer.tree, visits, *answer.branch});
    answer.result.prediction += answer.drafts[i]->take_prediction_counts();
  }
  teacher_.commit(answer, visits);
  std::vector<std::int32_t> taps;
  for (const Visit& visit : visits) taps.push_back(static_cast<std::int32_t>(answer.first_tap + visit.node));
  answer.tell({.begin = prefix,
               .tokens = answer.committed().subspan(static_cast<std::size_t>(prefix)),
               .taps = output.taps,
               .rows = taps,
               .hidden = output.hidden,
               .hidden_row = answer.first_row + visits.back().node});
  publish(answer, PrefixIndex::Tail::keep, After::goes_on);
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
          .form = form()};
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

// --- after a step ---------------------------------------------------------------------------------------------------

void Batch::release(Answer& answer) {
  answer.branch.reset();
  answer.drafts.clear();
  if (answer.sequence) cache_.release(*std::exchange(answer.sequence, {}));
  answer.length = answer.published = 0;
  answer.again = answer.keeps_to_itself = false;
}

void Batch::end_answers() {
  for (std::size_t i = 0; i < answers_.size();) {
    if (!answers_[i]->finish && !answers_[i]->failure) {
      ++i;
      continue;
    }
    const std::unique_ptr<Answer> ended = std::move(answers_[i]);
    answers_.erase(answers_.begin() + static_cast<std::ptrdiff_t>(i));
    end(*ended);
  }
}

// What a failed answer has computed serves nobody.
void Batch::end(Answer& answer) {
  answer.branch.reset();
  if (!answer.failure && answer.sequence && answer.length > 0 && answer.request.cache)
    guarded(answer, teacher_, [&] { leave_to_others(answer); });
  answer.result.finish_reason = answer.finish.value_or(FinishReason::cancelled);
  answer.result.decode_seconds = answer.clock.seconds() - answer.result.prefill_seconds;
  if (answer.request.events.on_end)
    answer.request.events.on_end({answer.result, answer.failure, cache_, answer.sequence});
  release(answer);
  if (answer.failure) cache_.check_conservation();
}

// --- loops over steps -----------------------------------------------------------------------------------------------

std::vector<GenerateResult> Batch::generate(std::span<const GenerateRequest> requests) {
  for (const GenerateRequest& request : requests) check_request(request, request_limits());
  std::vector<GenerateResult> results(requests.size());
  std::vector<std::exception_ptr> failures(requests.size());
  std::size_t left = requests.size();
  const RequestId first = next_id_;
  try {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      GenerateRequest heard = requests[i];
      heard.events.on_end = [&, i](const AnswerEnd& end) {
        results[i] = end.result;
        failures[i] = end.failure;
        --left;
        if (requests[i].events.on_end) requests[i].events.on_end(end);
      };
      submit(heard);
    }
    while (left > 0) step();
  } catch (...) {
    abandon(first, first + std::ssize(requests));
    throw;
  }
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return results;
}

GenerateResult Batch::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                               const GenerateEvents& events) {
  return generate(GenerateRequest{.prompt = prompt, .options = options, .events = events});
}

GenerateResult Batch::generate(const GenerateRequest& request) {
  return std::move(generate(std::span(&request, 1)).front());
}

void Batch::score(std::span<const std::int32_t> tokens,
                  const std::function<void(std::int64_t, std::span<const float>)>& on_row) {
  score_behind(0, tokens, [&](std::int64_t position, std::span<const std::span<const float>> rows) {
    for (const std::span<const float> row : rows) on_row(position++, row);
  });
}

void Batch::score_behind(std::int64_t first, std::span<const std::int32_t> tokens, const ScoredRows& on_rows) {
  check_tokens(tokens, request_limits());
  check(first >= 0 && first <= std::ssize(tokens), "score: from {} of {} tokens on", first, tokens.size());
  Answer scored(-1, {.prompt = tokens}, clock_);
  scored.sequence = cache_.create();
  const std::int64_t total = std::ssize(tokens);
  try {
    while (scored.length < total) {
      const std::int64_t done = scored.length;
      const bool wanted = done >= first;
      const std::int64_t count =
          wanted ? std::min(total - done, choices_.scored_rows) : std::min(first - done, choices_.prefill_rows);
      std::optional<Branch> branch = begin(scored, count, done);
      check(branch.has_value(), "KV cache: no room for {} rows behind {} positions", count, done);
      teacher_.score(*branch, done, tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(count)),
                     wanted);
      std::vector<std::span<const float>> rows;
      for (std::int64_t i = 0; wanted && i < count; ++i) rows.push_back(teacher_.read_logits(i).all);
      if (wanted) on_rows(done, rows);
      branch->commit_length(count);
      scored.length += count;
    }
  } catch (...) {
    release(scored);
    throw;
  }
  release(scored);
}

}  // namespace espalier
