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
constexpr int kRoundsToStopHearing = 32;
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
      networks_(shape.networks != 0),
      told_rows_(static_cast<std::size_t>(shape.tree_rows)),
      clock_(&clock) {}

void RoundBudget::welcome(Answer& answer, const DraftCompany& company) {
  const Audience audience = chooses() ? decide(company) : Audience();
  answer.hearing = audience.hearing == Hearing::everybody || !answer.prediction.empty();
  answer.rest(!answer.hearing || rests(answer, audience));
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

// Who hears and rests is decided by what most rounds are like, who is asked by this one. Who stops hearing has to begin
// anew, so a few rounds in larger company are not enough for that.
RoundBudget::Audience RoundBudget::decide(const DraftCompany& company) {
  company_.decide(company.answers, company.way, prospects(company, company.way));
  Audience audience{company_.hearing(), company_.rests(), company_.hearing() == Hearing::scout};
  if (audience.scout_is_enough && rounds_of_few_ < kRoundsToStopHearing) audience.hearing = Hearing::as_before;
  if (company.round != company.way) company_.decide(company.answers, company.round, prospects(company, company.round));
  return audience;
}

const Prospects& RoundBudget::prospects(const DraftCompany& company, DraftWay way) {
  KnownProspects& known = prospects_[static_cast<std::size_t>(way)];
  if (known.answers != company.answers || ++known.rounds >= kProspectRounds)
    known = {.answers = company.answers, .prospects = find_prospects(company, way)};
  return known.prospects;
}

Prospects RoundBudget::find_prospects(const DraftCompany& company, DraftWay way) const {
  if (way != DraftWay::resident) return budget_->prospects(company.answers);
  Prospects found = budget_->prospects(company.answers, kUsualLevelShare);
  if (!resident_) return found;
  const std::vector<double> seconds = step_seconds(budget_->round_context());
  const std::optional<double> rate =
      resident_->expected_rate(seconds, company.answers, company.trees, budget_->worth().mean());
  if (rate) found.gain = *rate * seconds_of_rows(seconds, company.answers) / company.answers;
  return found;
}

void RoundBudget::ask(std::span<Answer* const> answers, const Audience& audience) {
  const Hearing hearing = audience.hearing;
  rounds_of_few_ = audience.scout_is_enough ? std::min(rounds_of_few_ + 1, kRoundsToStopHearing) : 0;
  const Answer* scout = hearing == Hearing::everybody ? nullptr : find_scout(answers);
  scout_ = scout == nullptr ? std::nullopt : std::optional(scout->id);
  all_draft_ = company_.drafts();
  const bool scouts = scout != nullptr && has_heard_enough(*scout) && company_.scouts();
  const bool foretold = company_.foretold_draft();
  for (Answer* answer : answers) {
    const bool likely = !answer->prediction.empty(), scouting = answer == scout;
    answer->hear(answer->may_draft() && (likely || scouting || hearing == Hearing::everybody ||
                                         (hearing == Hearing::as_before && answer->hearing)));
    answer->asks = answer->is_ready() && (all_draft_ || (likely && foretold) || (scouting && scouts));
    answer->rest(!answer->asks && rests(*answer, audience));
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

// Only networks begin cold behind a text that they have not heard.
bool RoundBudget::has_heard_enough(const Answer& answer) const {
  return answer.is_ready() && (!networks_ || answer.has_heard_enough());
}

// A scout, too: between its rounds it remembers enough for the next.
bool RoundBudget::rests(const Answer& answer, const Audience& audience) const {
  if (audience.hearing == Hearing::everybody) return audience.rests;
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

void RoundBudget::observe_resident(std::int64_t trees, const ResidentChoice& chosen, std::optional<double> seconds) {
  if (!chooses()) return;
  resident_rows_ = trees * chosen.rows;
  if (seconds)
    resident_->observe(trees, chosen.depth, *seconds - seconds_of_rows(budget_->step_seconds(), resident_rows_));
}

void RoundBudget::observe_host(std::int64_t answers, bool drafted, double seconds) {
  if (resident_) resident_->observe_host(answers, drafted, seconds);
}

bool RoundBudget::judges(std::int64_t trees) const {
  return resident_ && (resident_->probes() || resident_rounds_ * kJudged % trees < kJudged);
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

bool RoundBudget::prefers(std::span<Answer* const> answers, std::int64_t trees) const {
  if (!resident_) return false;
  const std::optional<double> on_device =
      resident_->expected_rate(budget_->step_seconds(), std::ssize(answers), trees, budget_->worth().mean());
  return on_device && budget_->rate(drafts_of(answers)) > kWorthLeaving * *on_device;
}

void RoundBudget::observe_step(std::int64_t rows, std::int64_t context, double seconds) {
  if (budget_) budget_->observe_step(rows, context, seconds);
}

void RoundBudget::learn(const Answer& answer, std::span<const Visit> visits) {
  if (!chooses() || !answer.drafted) return;
  if (answer.candidates) {
    if (answer.prediction.empty() && has_heard_enough(answer))
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
    budget_->observe_drafting(drafted, (*std::ranges::find_if(answers, &Answer::drafted))->draft_seconds);
}

// Of those that count; the others' drafts are none of their business.
DraftOutcome RoundBudget::outcome(std::span<Answer* const> answers,
                                  const std::function<bool(const Answer&)>& counts) const {
  const auto drafted = std::ranges::count_if(answers, &Answer::drafted);
  std::int64_t rows = 0;
  for (const Answer* answer : answers) rows += answer->tree->size();
  const auto guesses = static_cast<double>(std::max<std::int64_t>(1, rows - std::ssize(answers)));
  if (std::ranges::any_of(answers, &Answer::resident)) rows = resident_rows_;
  DraftOutcome outcome{.plain_seconds = budget_->plain_seconds(), .answers = std::ssize(answers)};
  for (const Answer* answer : answers) {
    if (!counts(*answer)) continue;
    const double share = (answer->tree->size() - 1) / guesses;
    outcome.accepted += answer->result.accept_lengths.back();
    outcome.seconds += budget_->added_seconds(share, rows, drafted, answer->draft_seconds);
  }
  return outcome;
}

}  // namespace espalier
