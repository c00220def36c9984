#include "decode/batch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/step_timing.h"
#include "decode/stopwatch.h"

namespace espalier {
namespace {

DrafterSet make_drafters(KvCache& cache, int sequences, const Speculation& speculation, std::int64_t branch_rows) {
  check(!speculation.trees || !speculation.drafters, "trees that are known, and drafters too");
  if (!speculation.drafters) return {};
  DrafterSet drafters = speculation.drafters(cache, sequences);
  for (const auto& drafter : drafters)
    check(branch_rows == 1 || drafter->round_rows() <= branch_rows,
          "drafter {}: rounds of {} rows, expected at most {}", drafter->name(), drafter->round_rows(), branch_rows);
  return drafters;
}

// What the drafters want of the teacher.
std::vector<std::int64_t> taps_of(const DrafterSet& drafters) {
  std::vector<std::int64_t> taps;
  for (const auto& drafter : drafters) {
    const FeatureWishes wishes = drafter->wishes();
    if (wishes.taps.empty()) continue;
    if (!taps.empty() && taps != wishes.taps)
      throw InputError("--head: two EAGLE heads that tap the teacher at different layers cannot draft together");
    taps = wishes.taps;
  }
  return taps;
}

// One that stands still where nobody may take times for figures.
SecondsClock clock_of(const Device& device, const Speculation& speculation) {
  if (device.is_stand_in()) return [] { return 0.0; };
  return speculation.budget ? speculation.budget->clock : steady_seconds;
}

WorkspaceShape workspace_shape(const DecoderChoices& choices, const DrafterSet& drafters) {
  return {.rows = choices.step_rows,
          .outputs = choices.logit_rows,
          .positions = choices.context + choices.branch_rows,
          .tap_boundaries = taps_of(drafters),
          .form = choices.form};
}

KvOptions kv_options(const DecoderOptions& options, const DecoderChoices& choices) {
  KvOptions kv = options.kv;
  kv.padding_slots = choices.padding_slots;
  return kv;
}

}  // namespace

Batch::Batch(const Transformer& model, const DecoderOptions& options, const Speculation& speculation)
    : model_(&model),
      clock_(clock_of(model.device(), speculation)),
      stall_seconds_(options.stall_seconds),
      parallel_(options.parallel),
      choices_(decoder_choices(model.config(), model.device(), options, speculation)),
      cache_(model.device(), model.kv_shape(options.kv_type), choices_.cache_positions, kv_options(options, choices_)),
      index_(cache_),
      drafters_(make_drafters(cache_, options.parallel, speculation, choices_.branch_rows)),
      teacher_(model, cache_, clock_,
               {.workspace = workspace_shape(choices_, drafters_),
                .logit_rows = choices_.logit_rows,
                .invariants = options.invariants}),
      trees_(choices_, static_cast<std::int32_t>(model.config().vocabulary), speculation.trees, clock_),
      budget_(make_budget(speculation)),
      resident_(make_resident(options)) {
  for (const std::string& name : drafters()) statistics_.drafters.push_back({.name = name});
}

Batch::~Batch() = default;

// There is nothing to choose where a tree is its root alone, or where steps have no times. Who is alone has no prompt
// rows beside his own: then what steps cost is of no use to the scheduler either.
RoundBudget Batch::make_budget(const Speculation& speculation) {
  check(!speculation.trees || !speculation.budget, "trees that are known, and a budget that would cut them");
  if (!speculation.budget || device().is_stand_in()) return {};
  ChosenBudget chosen = *speculation.budget;
  chosen.cuts = chosen.cuts && max_rows(tree()) > 1;
  if (!chosen.cuts && parallel_ == 1) return {};
  const std::int64_t timed_rows =
      parallel_ == 1 ? choices_.tree_rows : std::max(choices_.tree_rows, std::min(choices_.step_rows, kTimedRows));
  const auto rows = padded_row_counts(device());
  const BudgetShape shape{.rows = static_cast<int>(choices_.step_rows),
                          .tree_rows = static_cast<int>(choices_.tree_rows),
                          .buckets = {rows.begin(), rows.end()},
                          .drafters = static_cast<int>(drafters_.size()),
                          .networks = networks()};
  return {chosen, shape, clock_, [&] { return teacher_.measure_times(timed_rows, chosen.clock); }};
}

// The drafters that run one.
SourceSet Batch::networks() const {
  SourceSet networks = 0;
  for (std::size_t i = 0; i < drafters_.size(); ++i) networks |= SourceSet{!drafters_[i]->guesses_on_host()} << i;
  return networks;
}

// --- requests -------------------------------------------------------------------------------------------------------

PoolState Batch::pool() const {
  const std::int64_t block = cache_.block_size();
  return {.block_size = block,
          .all_blocks = pool_blocks(),
          .free_blocks = cache_.free_positions() / block,
          .evictable_blocks = index_.evictable()};
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

// --- a step ---------------------------------------------------------------------------------------------------------

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
  if (resident_ && prompts.empty()) observe_host(decoding, seconds);
  statistics_.step_seconds += seconds;
  if (!decoding.empty()) learn_lateness(seconds);
  end_answers();
  return !answers_.empty();
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
