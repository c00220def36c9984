#include "decode/round_budget.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decode/answer.h"
#include "decode/row_choice.h"

namespace espalier {
namespace {

constexpr double kWorthLeaving = 1.25;  // the next round on the device begins with what it missed, which takes longer
constexpr std::int64_t kJudged = 4;     // trees of a round, on the average
constexpr int kProspectRounds = 8;      // after so many they are computed anew
constexpr int kScoutSpeaksFor = 4;  // or a company whose texts have turned would learn of it after hundreds of rounds

StepTimes times_of(const ChosenBudget& chosen, const std::function<StepTimes()>& measure) {
  if (chosen.times && chosen.times->usable()) return *chosen.times;
  StepTimes times = measure();
  if (chosen.on_measured) chosen.on_measured(times);
  return times;
}

std::vector<DraftOfSequence> drafts_of(std::span<Answer* const> answers) {
  std::vector<DraftOfSequence> drafts;
  for (const Answer* answer : answers) drafts.push_back({&*answer->candidates, answer->room});
  return drafts;
}

// The tree with log p for scores.
TokenTree with_chances(const TokenTree& tree, const Candidates& candidates, const AcceptanceEstimate& chances) {
  TokenTree judged(tree[0].token);
  std::vector<int> id(static_cast<std::size_t>(tree.size()));
  for (int n = 1; n < tree.size(); ++n) {
    const TreeNode& node = tree[n];
    const int found = candidates.find(id[static_cast<std::size_t>(node.parent)], node.token);
    id[static_cast<std::size_t>(n)] = found;
    judged.append(node.parent, {node.token, score_of(chances[found]), node.sources});
  }
  return judged;
}

}  // namespace

RoundBudget::RoundBudget(const ChosenBudget& chosen, const BudgetShape& shape, const SecondsClock& clock,
                         const std::function<StepTimes()>& measure)
    : budget_(std::in_place, times_of(chosen, measure), shape),
      cuts_(chosen.cuts),
      told_rows_(static_cast<std::size_t>(shape.tree_rows)),
      clock_(&clock) {}

void RoundBudget::welcome(Answer& answer, const DraftCompany& company) {
  const Hearing hearing = chooses() ? decide(company) : Hearing::everybody;
  answer.hearing = hearing == Hearing::everybody || !answer.prediction.empty();
  answer.rest(!answer.hearing || rests(answer, hearing));
}

void RoundBudget::begin_round(std::span<Answer* const> answers, const DraftCompany& company, std::int64_t prompt_rows) {
  RoundShape round{.roots = static_cast<int>(answers.size()), .prompt_rows = static_cast<int>(prompt_rows)};
  if (chooses()) {
    ask(answers, decide(company));
  } else {
    for (Answer* answer : answers) answer->asks = answer->may_draft();
  }
  for (const Answer* answer : answers) {
    round.wins = round.wins || (answer->asks && chooses() && wins(*answer));
    round.context += answer->length;
  }
  round.context /= std::ssize(answers);
  if (budget_) budget_->begin_round(round);
}

// Who hears is decided by what most rounds are like, who is asked by this one.
Hearing RoundBudget::decide(const DraftCompany& company) {
  company_.decide(company.answers, company.way, prospects(company.answers, company.way));
  const Hearing hearing = company_.hearing();
  if (company.round != company.way)
    company_.decide(company.answers, company.round, prospects(company.answers, company.round));
  return hearing;
}

const Prospects& RoundBudget::prospects(std::int64_t answers, DraftWay way) {
  KnownProspects& known = prospects_[static_cast<std::size_t>(way)];
  if (known.answers != answers || ++known.rounds >= kProspectRounds)
    known = {.answers = answers, .prospects = find_prospects(answers, way)};
  return known.prospects;
}

Prospects RoundBudget::find_prospects(std::int64_t answers, DraftWay way) const {
  const auto roots = static_cast<int>(answers);
  if (way != DraftWay::resident) return budget_->prospects(roots);
  Prospects found = budget_->prospects(roots, kUsualLevelShare);
  if (!resident_) return found;
  const std::vector<double> seconds = step_seconds(budget_->round_context());
  const std::optional<double> rate = resident_->expected_rate(seconds, answers, budget_->worth().mean());
  if (rate) found.gain = *rate * seconds_of_rows(seconds, answers) / static_cast<double>(answers);
  return found;
}

void RoundBudget::ask(std::span<Answer* const> answers, Hearing hearing) {
  const Answer* scout = hearing == Hearing::everybody ? nullptr : find_scout(answers);
  scout_ = scout == nullptr ? std::nullopt : std::optional(scout->id);
  all_draft_ = company_.drafts();
  const bool scouts = scout != nullptr && scout->has_heard_enough() && company_.scouts();
  const bool foretold = company_.foretold_draft();
  for (Answer* answer : answers) {
    const bool likely = !answer->prediction.empty(), scouting = answer == scout;
    answer->hear(answer->may_draft() && (likely || scouting || hearing == Hearing::everybody ||
                                         (hearing == Hearing::as_before && answer->hearing)));
    answer->asks = answer->is_ready() && (all_draft_ || (likely && foretold) || (scouting && scouts));
    answer->rest(!answer->asks && rests(*answer, hearing));
  }
}

// The same as before while it decodes; else who is heard already, the newest among them: it has most to come.
Answer* RoundBudget::find_scout(std::span<Answer* const> answers) {
  Answer* scout = nullptr;
  for (Answer* answer : answers) {
    if (!answer->may_draft() || !answer->prediction.empty()) continue;
    if (scout_ == answer->id) return answer;
    if (scout == nullptr || answer->hearing >= scout->hearing) scout = answer;
  }
  return scout;
}

// A scout, too: between its rounds it remembers enough for the next.
bool RoundBudget::rests(const Answer& answer, Hearing hearing) const {
  if (hearing == Hearing::everybody) return chooses() && company_.rests();
  return answer.prediction.empty() || company_.foretold_rest();
}

bool RoundBudget::wins(const Answer& answer) const {
  if (all_draft_) return company_.wins();
  return scout_ == answer.id ? company_.scout_wins() : company_.foretold_wins();
}

void RoundBudget::cut(std::span<Answer* const> answers, double draft_seconds) {
  if (!chooses()) return;
  std::vector<TokenTree> trees = budget_->cut(drafts_of(answers), draft_seconds);
  for (std::size_t i = 0; i < answers.size(); ++i) answers[i]->tree = std::move(trees[i]);
}

std::vector<double> RoundBudget::step_seconds(std::int64_t context, std::int64_t rows) const {
  if (!budget_) return {};
  std::vector<double> seconds(std::min(budget_->step_seconds().size(), static_cast<std::size_t>(rows)));
  budget_->costs().fill(context, seconds);
  return seconds;
}

ResidentChoice RoundBudget::choose_resident(std::int64_t trees, const ResidentChoice& most) {
  if (!chooses()) return most;
  if (!resident_) resident_.emplace(most);
  ++resident_rounds_;
  return resident_->choose(budget_->step_seconds(), trees);
}

void RoundBudget::observe_resident(std::int64_t trees, const ResidentChoice& chosen, double seconds) {
  if (!chooses()) return;
  resident_->observe(trees, chosen.depth, seconds - seconds_of_rows(budget_->step_seconds(), trees * chosen.rows));
}

void RoundBudget::observe_host(std::int64_t answers, bool drafted, double seconds) {
  if (resident_) resident_->observe_host(answers, drafted, seconds);
}

bool RoundBudget::judges(std::int64_t trees) const {
  return chooses() && resident_rounds_ * kJudged % trees < kJudged;
}

void RoundBudget::judge_resident(Answer& answer, std::int64_t trees, const ResidentChoice& chosen) {
  if (!chooses()) return;
  answer.draft_seconds = resident_->draft_seconds(trees, chosen.depth);
  if (!answer.candidates) return;
  const Candidates& candidates = *answer.candidates;
  AcceptanceEstimate chances;
  chances.extend(candidates, budget_->calibration());
  if (const int levels = std::min(answer.levels, chosen.depth); levels > 0)
    resident_->learn(candidates, chances, levels);
  answer.tree = with_chances(*answer.tree, candidates, chances);
}

bool RoundBudget::prefers(std::span<Answer* const> answers) const {
  if (!resident_) return false;
  const std::optional<double> on_device =
      resident_->expected_rate(budget_->step_seconds(), std::ssize(answers), budget_->worth().mean());
  return on_device && budget_->rate(drafts_of(answers)) > kWorthLeaving * *on_device;
}

void RoundBudget::observe_step(std::int64_t rows, std::int64_t context, double seconds) {
  if (budget_) budget_->observe_step(rows, context, seconds);
}

void RoundBudget::learn(const Answer& answer, std::span<const Visit> visits) {
  if (!chooses() || !answer.drafted) return;
  if (answer.candidates) {
    if (answer.has_heard_enough())
      budget_->appraise(*answer.candidates, answer.asked, scout_ == answer.id ? kScoutSpeaksFor : 1);
    budget_->learn(*answer.candidates, visits);
  }
  if (answer.passed_over) budget_->learn(*answer.passed_over, visits);
}

std::optional<BudgetRound> RoundBudget::told(const Answer& answer, std::int64_t step_rows) const {
  if (!chooses()) return std::nullopt;
  return BudgetRound{answer.drafted, budget_->step_seconds().first(told_rows_), step_rows};
}

void RoundBudget::end_round(std::span<Answer* const> answers) {
  if (!chooses()) return;
  const auto settle = [&](const auto& counts, const auto& settled) {
    const auto drafted = [&](const Answer& answer) { return answer.drafted && !answer.failure && counts(answer); };
    if (std::ranges::any_of(answers, [&](const Answer* answer) { return drafted(*answer); }))
      settled(outcome(answers, drafted));
  };
  if (all_draft_) {
    settle([](const Answer&) { return true; }, [&](const DraftOutcome& of_all) { company_.settle(of_all); });
  } else {
    settle([&](const Answer& answer) { return scout_ == answer.id; },
           [&](const DraftOutcome& of_scout) { company_.settle_scout(of_scout); });
    settle([&](const Answer& answer) { return scout_ != answer.id; },
           [&](const DraftOutcome& of_foretold) { company_.settle_foretold(of_foretold); });
  }
  if (const auto drafted = std::ranges::count_if(answers, &Answer::drafted); drafted > 0)
    budget_->observe_drafting((*std::ranges::find_if(answers, &Answer::drafted))->draft_seconds /
                              static_cast<double>(drafted));
}

// Of those that count; the others' drafts are none of their business.
DraftOutcome RoundBudget::outcome(std::span<Answer* const> answers,
                                  const std::function<bool(const Answer&)>& counts) const {
  int rows = 0, drafted = 0;
  for (const Answer* answer : answers) {
    rows += answer->tree->size();
    drafted += answer->drafted ? 1 : 0;
  }
  DraftOutcome outcome{.plain_seconds = budget_->plain_seconds(), .answers = std::ssize(answers)};
  for (const Answer* answer : answers) {
    if (!counts(*answer)) continue;
    outcome.accepted += answer->result.accept_lengths.back();
    outcome.seconds += budget_->added_seconds(answer->tree->size(), rows, answer->draft_seconds / drafted);
  }
  return outcome;
}

}  // namespace espalier
