// The part of a batch whose rounds stay on the device (resident_rounds.h): all answers that decode, in one launch,
// where the device can draw for each of them. In any other step rounds are driven from the host (batch_step.cpp).
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "decode/answer.h"
#include "decode/answer_failure.h"
#include "decode/batch.h"
#include "decode/draft_rows.h"
#include "decode/draw.h"
#include "decode/stopwatch.h"

namespace espalier {
namespace {

// Whether the device draws what the host would.
bool draws_on_device(const Answer& answer) {
  const GenerateOptions& options = answer.request.options;
  const SamplingOptions& sampling = options.sampling;
  const bool ranked = sampling.temperature == 0 || sampling.top_k <= kRankedTokens;
  return !changes_logits(sampling) && ranked && options.logprobs < 0 &&
         banned_tokens(options, std::ssize(answer.result.tokens)).empty();
}

}  // namespace

// The only one that can, where all others guess on the host.
std::optional<std::size_t> Batch::find_resident_drafter() const {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < drafters_.size(); ++i) {
    if (drafters_[i]->guesses_on_host()) continue;
    if (found || !ResidentRounds::possible(device(), *drafters_[i], form())) return std::nullopt;
    found = i;
  }
  return found;
}

// Asked for in vain is an error; `automatic` takes it where the device has memory of its own: there a turn of the host
// costs more than rows that nobody needs.
std::unique_ptr<ResidentRounds> Batch::make_resident(const DecoderOptions& options) {
  const bool wanted = options.round_route == RoundRoute::device;
  if (options.round_route == RoundRoute::host || drafters_.empty() || max_rows(tree()) <= 1) return nullptr;
  if (!wanted && !device().free_memory()) return nullptr;
  const auto refuse = [&](const std::string& why) {
    if (wanted) input_error("--round-route device: {}", why);
    return nullptr;
  };
  if (options.kv.reorder != Reorder::fast) return refuse("paths are committed by the fast reorder there");
  if (options.invariants) return refuse("the tables of its steps cannot be looked at before their launch");
  if (device().round_ops() == nullptr)
    return refuse(fmt::format("the device {} drives rounds from the host", device().name()));
  if (const std::int64_t most = device().round_ops()->most_nodes(); candidate_nodes(tree()) > most)
    return refuse(fmt::format("its trees have at most {} nodes, {} are to be guessed", most, candidate_nodes(tree())));
  if (form().mask != MaskForm::list) return refuse("who sees whom is told by lists there, not by a mask");
  const std::optional<std::size_t> drafter = find_resident_drafter();
  if (!drafter) return refuse(fmt::format("rounds of {} are driven from the host", fmt::join(drafters(), ", ")));
  if (drafters_.size() > 1 && !budget_.chooses())
    return refuse("with a fixed budget rounds of several drafters are driven from the host");
  resident_drafter_ = *drafter;
  return std::make_unique<ResidentRounds>(*model_, cache_, teacher_.workspace(), *drafters_[*drafter],
                                          ResidentOptions{.tree = tree(),
                                                          .sequences = parallel_,
                                                          .branch_rows = choices_.branch_rows,
                                                          .sources = SourceSet{1} << *drafter});
}

// Its rounds are such as the device takes.
bool Batch::fits_device(const Answer& answer) const {
  const auto& shape = answer.request.draft.tree;
  return !answer.failure && answer.guesses(resident_drafter_) && (!shape || *shape == tree().shape) &&
         draws_on_device(answer);
}

bool Batch::has_room_to_draft(const Answer& answer) const {
  const RoundLimits limits = trees_.limits(answer);
  return limits.depth > 0 && limits.rows > 1;
}

bool Batch::may_stay_on_device(std::span<Answer* const> answers, std::span<const PromptPart> prompts) const {
  return resident_ && prompts.empty() && !answers.empty() && std::ranges::all_of(answers, [&](const Answer* answer) {
           return answer->asks && fits_device(*answer) && has_room_to_draft(*answer) &&
                  resident_->levels_behind(*answer->drafts[resident_drafter_], answer->path) > 0;
         });
}

// Those who guess on the host are asked before the launch. If that promises more tokens in the same time than a round
// on the device, their trees are what is verified; else they hear what became of the round, and learn from it.
bool Batch::host_promises_more(std::span<Answer* const> answers) {
  if (drafters_.size() == 1) return false;
  bool more = false;
  guarded(answers, teacher_, [&] {
    const Stopwatch clock(clock_);
    trees_.propose(answers, drafters_, ~(SourceSet{1} << resident_drafter_), budget_);
    more = budget_.prefers(answers, resident_->trees_for(std::ssize(answers)));
    if (more) trees_.cut(answers, clock, budget_);
  });
  return more;
}

void Batch::run_resident(std::span<Answer* const> answers) {
  Stopwatch clock(clock_);
  std::vector<ResidentVerdict> verdicts;
  if (!guarded(answers, teacher_, [&] { verdicts = launch(answers); })) return;
  const double seconds = clock.seconds();
  const std::int64_t trees = resident_->trees_for(std::ssize(answers));
  budget_.observe_resident(trees, resident_shape_, resident_->settled() ? std::optional(seconds) : std::nullopt);
  std::vector<Answer*> undecided;
  for (std::size_t s = 0; s < answers.size(); ++s) {
    Answer& answer = *answers[s];
    answer.tree = std::move(verdicts[s].tree);
    if (answer.asked != SourceSet{1} << resident_drafter_) answer.passed_over = std::move(answer.candidates);
    answer.candidates = std::move(verdicts[s].candidates);
    budget_.judge_resident(answer, trees, resident_shape_);
    if (verdicts[s].outcome == RowState::decided) {
      answer.times.verify = seconds;
      continue;
    }
    // The host verifies the tree; for it the whole launch was drafting.
    answer.times.draft = answer.draft_seconds = seconds;
    undecided.push_back(&answer);
  }
  teacher_.note_step(trees * resident_shape_.rows, answers);
  statistics_.count_resident(answers, teacher_.step_rows());
  for (std::size_t s = 0; s < answers.size(); ++s)
    if (verdicts[s].outcome == RowState::decided)
      guarded(*answers[s], teacher_, [&] { accept_resident(*answers[s], verdicts[s], static_cast<std::int64_t>(s)); });
  tell_all_told(answers);
  if (!undecided.empty()) run_teacher(undecided, {});
  std::vector<Answer*> left;
  for (Answer* answer : answers)
    if (!answer->failure) left.push_back(answer);
  if (!left.empty()) budget_.end_round(left);
}

// A step of the batch took so long, and of that it computed as long as it waited for the device.
void Batch::observe_host(std::span<Answer* const> answers, double seconds) {
  const auto all = [&](bool Answer::*fact, bool value) {
    return std::ranges::all_of(answers, [&](const Answer* answer) { return answer->*fact == value; });
  };
  if (answers.empty()) return;
  const bool resident = all(&Answer::resident, true);
  if (!resident && !all(&Answer::drafted, false)) return;
  const RoundTimes& times = answers[0]->times;
  budget_.observe_host(std::ssize(answers), resident, seconds - times.prepare - times.verify);
}

std::vector<ResidentVerdict> Batch::launch(std::span<Answer* const> answers) {
  resident_shape_ = budget_.choose_resident(resident_->trees_for(std::ssize(answers)), resident_->most());
  std::vector<ResidentJob> jobs;
  for (Answer* answer : answers) {
    const RoundLimits limits = trees_.limits(*answer);
    answer->stage = AnswerStage::draft;
    answer->room = limits.rows;
    answer->levels = std::min(limits.depth, resident_->levels_behind(*answer->drafts[resident_drafter_], answer->path));
    answer->drafted = true;
    answer->drafted_at = answer->length;
    answer->asked |= SourceSet{1} << resident_drafter_;
    answer->tensors.prefix = static_cast<std::int32_t>(answer->length);
    answer->drafts[resident_drafter_]->begin_round({.tokens = answer->path, .branch = &*answer->branch});
    jobs.push_back({.sequence = answer->drafts[resident_drafter_].get(),
                    .branch = &*answer->branch,
                    .root = answer->path.back(),
                    .prefix = answer->length,
                    .rows = std::min<std::int64_t>(limits.rows, resident_shape_.rows),
                    .depth = std::min(answer->levels, resident_shape_.depth),
                    .options = &answer->request.options});
  }
  const bool heard = std::ranges::any_of(
      answers, [](const Answer* answer) { return static_cast<bool>(answer->request.events.on_round); });
  return resident_->run(jobs, resident_shape_, heard || budget_.judges(std::ssize(answers)));
}

// The path is in place already; the answer may end before it does.
void Batch::accept_resident(Answer& answer, const ResidentVerdict& verdict, std::int64_t number) {
  Stopwatch clock(clock_);
  answer.stage = AnswerStage::accept;
  answer.resident = true;
  std::vector<Visit> visits;
  for (const Visit& visit : verdict.visits) {
    visits.push_back(visit);
    answer.take({.token = visit.token, .logprobs = {}}, context());
    if (answer.finish) break;
  }
  answer.times.accept = clock.lap();
  answer.stage = AnswerStage::commit;
  const std::int64_t first = number * resident_shape_.rows;
  const LastingFeatures& features = resident_->features();
  commit(answer, visits,
         {.taps = features.taps,
          .hidden = features.hidden,
          .first_tap = first,
          .first_row = first,
          .drafted = verdict.drafted,
          .lasting = true});
  answer.times.commit = clock.lap();
  tell_round(answer, visits);
}

}  // namespace espalier
