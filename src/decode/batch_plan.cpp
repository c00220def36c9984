// The part of a batch that says who is in the next step, as the scheduler plans it (scheduler.h), and lets them in or
// out.
#include <algorithm>

#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/batch.h"
#include "decode/row_choice.h"

namespace espalier {
namespace {

// Requests beyond these learn of their hits when they come nearer to the front: looking at all in every step would cost
// the steps of those who run.
constexpr int kLookedUp = 64;

constexpr double kAimedShare = 0.9;             // of what others may wait: not every step takes what it should
constexpr double kLater = 0.5, kSooner = 0.05;  // shares of the newest in what is known of the lateness of steps

SequencePhase phase_of(const Answer& answer) {
  switch (answer.phase) {
    case AnswerPhase::waiting: return SequencePhase::waiting;
    case AnswerPhase::prompt: return SequencePhase::prompt;
    case AnswerPhase::decoding: return SequencePhase::decoding;
  }
  return SequencePhase::waiting;
}

}  // namespace

// --- what the scheduler is told -------------------------------------------------------------------------------------

SchedulerLimits Batch::scheduler_limits() const {
  return {.parallel = parallel_,
          .prefill_rows = choices_.prefill_rows,
          .reserve = choices_.reserve,
          .stall_seconds = kAimedShare * stall_seconds_ - lateness_};
}

// Beside the teacher's rows there are drafts, what drafters make of rows, and acceptance; and rows may cost more than
// they were measured to. Quick to believe in the worse: somebody waits for it.
void Batch::learn_lateness(double seconds) {
  const std::vector<double> known = budget_.step_seconds(teacher_.step_context(), teacher_.step_rows());
  if (known.empty()) return;
  const double late = seconds - seconds_of_rows(known, teacher_.step_rows());
  lateness_ = std::max(0.0, lateness_ + (late > lateness_ ? kLater : kSooner) * (late - lateness_));
}

BatchPlan Batch::plan() const {
  std::vector<SequenceState> states;
  states.reserve(answers_.size());
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

// Those who decode have the first rows of a step, behind their own texts; further ones stand where the longest prompt
// is being read. Time is a straight line over the context, so that of both together lies between. Where nothing is
// known of the time that steps take, prompts are bounded by their rows alone.
std::vector<double> Batch::step_seconds() const {
  std::int64_t decoding = 0, positions = 0, longest = 0;
  for (const auto& answer : answers_) {
    if (answer->phase == AnswerPhase::decoding) ++decoding, positions += answer->length;
    if (answer->phase == AnswerPhase::prompt) longest = std::max(longest, answer->length);
  }
  // Nobody reads a prompt: then nobody asks.
  if (decoding == std::ssize(answers_)) return std::vector<double>(static_cast<std::size_t>(choices_.step_rows));
  std::vector<double> seconds = budget_.step_seconds(decoding > 0 ? positions / decoding : longest);
  const std::vector<double> read = budget_.step_seconds(longest);
  for (auto row = static_cast<std::size_t>(decoding); row < seconds.size(); ++row) {
    const double share =
        static_cast<double>(row + 1 - static_cast<std::size_t>(decoding)) / static_cast<double>(row + 1);
    seconds[row] += share * (read[row] - seconds[row]);
    if (row > 0) seconds[row] = std::max(seconds[row], seconds[row - 1]);
  }
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

// --- who leaves, who comes ------------------------------------------------------------------------------------------

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
  open_drafts(answer);
  if (!answer.preempted && answer.reusable() > 0) statistics_.prefix_queries += answer.target();
  if (!reuse(answer)) answer.tell_reused(0);
  const auto& told = answer.request.events.on_prefill;
  if (told && !answer.preempted) answer.ask(told, 0, answer.target() - answer.length);
}

// Who waits will soon be company too. With prompts in it a round is driven from the host.
DraftCompany Batch::draft_company(std::span<const PromptPart> prompts) const {
  DraftCompany company{.answers = std::min(parallel_, static_cast<int>(answers_.size()))};
  company.way = company.round = networks() != 0 ? DraftWay::host : DraftWay::lookup;
  const auto all = [&](AnswerPhase phase, const auto& are) {
    return std::ranges::all_of(answers_, [&](const auto& answer) { return answer->phase < phase || are(*answer); });
  };
  if (!resident_ || !all(AnswerPhase::prompt, [&](const Answer& answer) { return fits_device(answer); }))
    return company;
  company.way = DraftWay::resident;
  company.trees = resident_->trees_for(company.answers);
  if (prompts.empty() && all(AnswerPhase::decoding, [&](const Answer& answer) { return has_room_to_draft(answer); }))
    company.round = DraftWay::resident;
  return company;
}

// Who is not asked is not told either: he would copy taps and compute rows for nobody.
void Batch::open_drafts(Answer& answer) {
  answer.every_text = answer.tapping = 0;
  answer.heard_from = answer.drafted_at = 0;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    Drafter& drafter = *drafters_[i];
    answer.drafts.emplace_back();
    if (!answer.guesses(i) && !drafter.needs_every_text()) continue;
    answer.drafts.back() = drafter.open(*answer.sequence, answer.prompt);
    answer.drafts.back()->predict(answer.prompt, answer.prediction);
    answer.every_text |= SourceSet{drafter.needs_every_text()} << i;
    answer.tapping |= SourceSet{!drafter.wishes().taps.empty()} << i;
  }
  budget_.welcome(answer, draft_company({}));
}

}  // namespace espalier
