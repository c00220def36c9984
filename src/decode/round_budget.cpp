#include "decode/round_budget.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "decode/answer.h"
#include "decode/row_choice.h"

namespace espalier {
namespace {

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

void RoundBudget::begin_round(std::span<Answer* const> answers, std::int64_t prompt_rows) {
  RoundShape round{.roots = static_cast<int>(answers.size()), .prompt_rows = static_cast<int>(prompt_rows)};
  const bool hopes = !chooses() || budget_->may_pay(round.roots);
  patience_.drafts();  // a pause goes on in answers to come
  for (Answer* answer : answers) {
    answer->hopes = hopes || answer->patience.wins();
    answer->asks = answer->request.draft.drafts && answer->hopes && (!chooses() || answer->patience.drafts());
    round.wins = round.wins || (answer->asks && answer->patience.wins());
    round.context += answer->length;
  }
  round.context /= std::ssize(answers);
  if (budget_) budget_->begin_round(round);
}

void RoundBudget::cut(std::span<Answer* const> answers, double draft_seconds) {
  if (!chooses()) return;
  std::vector<TokenTree> trees = budget_->cut(drafts_of(answers), draft_seconds);
  for (std::size_t i = 0; i < answers.size(); ++i) answers[i]->tree = std::move(trees[i]);
}

std::vector<double> RoundBudget::step_seconds(std::int64_t context) const {
  if (!budget_) return {};
  std::vector<double> seconds(budget_->step_seconds().size());
  budget_->costs().fill(context, seconds);
  return seconds;
}

ResidentChoice RoundBudget::choose_resident(std::int64_t trees, const ResidentChoice& most) {
  if (!chooses()) return most;
  if (!resident_) resident_.emplace(most);
  return resident_->choose(budget_->step_seconds(), trees);
}

void RoundBudget::observe_resident(std::int64_t trees, const ResidentChoice& chosen, double seconds) {
  if (!chooses()) return;
  resident_->observe(chosen.depth, seconds - seconds_of_rows(budget_->step_seconds(), trees * chosen.rows));
}

void RoundBudget::judge_resident(Answer& answer, const ResidentChoice& chosen) {
  if (!chooses()) return;
  const Candidates& candidates = *answer.candidates;
  AcceptanceEstimate chances;
  chances.extend(candidates, budget_->calibration());
  if (const int levels = std::min(answer.levels, chosen.depth); levels > 0)
    resident_->learn(candidates, chances, levels);
  answer.tree = with_chances(*answer.tree, candidates, chances);
  answer.draft_seconds = resident_->draft_seconds(chosen.depth);
}

bool RoundBudget::prefers(std::span<Answer* const> answers) const {
  if (!resident_) return false;
  const std::optional<double> on_device = resident_->expected_rate(budget_->step_seconds(), std::ssize(answers));
  return on_device && budget_->rate(drafts_of(answers)) > *on_device;
}

void RoundBudget::observe_step(std::int64_t rows, std::int64_t context, double seconds) {
  if (budget_) budget_->observe_step(rows, context, seconds);
}

void RoundBudget::learn(const Answer& answer, std::span<const Visit> visits) {
  if (!chooses() || !answer.drafted) return;
  budget_->learn(*answer.candidates, visits);
  if (answer.passed_over) budget_->learn(*answer.passed_over, visits);
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
    const double seconds = budget_->drafted_seconds(answer->tree->size(), rows, drafted, answer->draft_seconds);
    const auto tokens = static_cast<double>(answer->result.accept_lengths.back() + 1);
    answer->patience.settle(tokens, seconds, budget_->plain_seconds());
    patience_ = answer->patience;
  }
}

}  // namespace espalier
