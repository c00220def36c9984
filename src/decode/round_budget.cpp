#include "decode/round_budget.h"

#include <utility>
#include <vector>

#include "decode/answer.h"
#include "decode/stopwatch.h"

namespace espalier {
namespace {

StepTimes step_times(const ChosenBudget& chosen, const std::function<StepTimes()>& measure) {
  if (chosen.times && chosen.times->usable()) return *chosen.times;
  StepTimes times = measure();
  if (chosen.on_measured) chosen.on_measured(times);
  return times;
}

double draft_seconds(std::span<Answer* const> answers) {
  double seconds = 0;
  for (const Answer* answer : answers) seconds += answer->times.draft;
  return seconds;
}

}  // namespace

RoundBudget::RoundBudget(const ChosenBudget& chosen, const BudgetShape& shape, const SecondsClock& clock,
                         const std::function<StepTimes()>& measure)
    : budget_(std::in_place, step_times(chosen, measure), shape), clock_(&clock) {}

bool RoundBudget::begin_round(std::span<Answer* const> answers) {
  if (!budget_) return true;
  std::int64_t positions = 0;
  for (const Answer* answer : answers) positions += answer->lane.length();
  return budget_->begin_round(static_cast<int>(answers.size()), positions / std::ssize(answers));
}

void RoundBudget::cut(std::span<Answer* const> answers) {
  if (!budget_) return;
  Stopwatch clock(*clock_);
  std::vector<DraftOfLane> drafts;
  for (const Answer* answer : answers) drafts.push_back({&*answer->candidates, answer->room});
  std::vector<TokenTree> trees = budget_->cut(drafts, draft_seconds(answers));
  const double seconds = clock.lap() / static_cast<double>(answers.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i]->tree = std::move(trees[i]);
    answers[i]->times.draft += seconds;
  }
}

void RoundBudget::observe_step(std::int64_t rows, double seconds) {
  if (budget_) budget_->observe_step(rows, seconds);
}

void RoundBudget::learn(const Answer& answer, std::span<const Visit> visits) {
  if (budget_ && answer.drafted) budget_->learn(*answer.candidates, visits);
}

std::optional<BudgetRound> RoundBudget::told(const Answer& answer, std::int64_t step_rows) const {
  if (!budget_) return std::nullopt;
  return BudgetRound{answer.drafted, budget_->step_seconds(), step_rows};
}

void RoundBudget::end_round(std::span<Answer* const> answers) {
  if (!budget_) return;
  std::int64_t rows = 0, tokens = 0;
  for (const Answer* answer : answers) {
    rows += answer->tree->size();
    tokens += answer->result.accept_lengths.back() + 1;
  }
  budget_->end_round(rows, tokens, draft_seconds(answers));
}

}  // namespace espalier
