#include "decode/round_budget.h"

#include <utility>
#include <vector>

#include "decode/answer.h"

namespace espalier {
namespace {

StepTimes times_of(const ChosenBudget& chosen, const std::function<StepTimes()>& measure) {
  if (chosen.times && chosen.times->usable()) return *chosen.times;
  StepTimes times = measure();
  if (chosen.on_measured) chosen.on_measured(times);
  return times;
}

}  // namespace

RoundBudget::RoundBudget(const ChosenBudget& chosen, const BudgetShape& shape, const SecondsClock& clock,
                         const std::function<StepTimes()>& measure)
    : budget_(std::in_place, times_of(chosen, measure), shape),
      cuts_(chosen.cuts),
      told_rows_(static_cast<std::size_t>(shape.tree_rows)),
      clock_(&clock) {}

void RoundBudget::begin_round(std::span<Answer* const> answers, std::int64_t prompt_rows) {
  RoundShape round{.roots = static_cast<int>(answers.size()), .prompt_rows = static_cast<int>(prompt_rows)};
  for (Answer* answer : answers) {
    answer->asks = answer->request.draft.drafts && (!chooses() || answer->patience.drafts());
    round.wins = round.wins || (answer->asks && answer->patience.wins());
    round.context += answer->length;
  }
  round.context /= std::ssize(answers);
  if (budget_) budget_->begin_round(round);
}

void RoundBudget::cut(std::span<Answer* const> answers, double draft_seconds) {
  if (!chooses()) return;
  std::vector<DraftOfSequence> drafts;
  for (const Answer* answer : answers) drafts.push_back({&*answer->candidates, answer->room});
  std::vector<TokenTree> trees = budget_->cut(drafts, draft_seconds);
  for (std::size_t i = 0; i < answers.size(); ++i) answers[i]->tree = std::move(trees[i]);
}

std::vector<double> RoundBudget::step_seconds(std::int64_t context) const {
  if (!budget_) return {};
  std::vector<double> seconds(budget_->step_seconds().size());
  budget_->costs().fill(context, seconds);
  return seconds;
}

void RoundBudget::observe_step(std::int64_t rows, std::int64_t context, double seconds) {
  if (budget_) budget_->observe_step(rows, context, seconds);
}

void RoundBudget::learn(const Answer& answer, std::span<const Visit> visits) {
  if (chooses() && answer.drafted) budget_->learn(*answer.candidates, visits);
}

std::optional<BudgetRound> RoundBudget::told(const Answer& answer, std::int64_t step_rows) const {
  if (!chooses()) return std::nullopt;
  return BudgetRound{answer.drafted, budget_->step_seconds().first(told_rows_), step_rows};
}

void RoundBudget::end_round(std::span<Answer* const> answers) {
  if (!chooses()) return;
  int rows = 0, drafted = 0;
  for (const Answer* answer : answers) {
    rows += answer->tree->size();
    drafted += answer->drafted ? 1 : 0;
  }
  for (Answer* answer : answers) {
    if (!answer->drafted || answer->failure) continue;
    const double seconds = budget_->drafted_seconds(answer->tree->size(), rows, drafted, answer->times.draft);
    const auto tokens = static_cast<double>(answer->result.accept_lengths.back() + 1);
    answer->patience.settle(tokens, seconds, budget_->plain_seconds());
    patience_ = answer->patience;
  }
}

}  // namespace espalier
