#include "trace/turn_recorder.h"

#include <utility>

namespace espalier {
namespace {

TracedBudget traced(const BudgetRound& budget) {
  const auto seconds = [&](std::int64_t rows) {
    const auto index = static_cast<std::size_t>(rows - 1);
    return index < budget.step_seconds.size() ? budget.step_seconds[index] : 0;
  };
  return {.drafted = budget.drafted,
          .step_rows = budget.step_rows,
          .step_seconds = seconds(budget.step_rows),
          .plain_seconds = seconds(1)};
}

}  // namespace

void TurnRecorder::observe(const Round& round) {
  rounds_.push_back({.number = round.number,
                     .prefix = round.prefix,
                     .tree = round.tree,
                     .visits = {round.visits.begin(), round.visits.end()},
                     .finish = round.finish ? std::string(name(*round.finish)) : std::string(),
                     .times = round.times,
                     .kv = round.kv,
                     .form = round.form});
  if (round.budget) rounds_.back().budget = traced(*round.budget);
}

TracedTurn TurnRecorder::take(const TurnFacts& facts, const GenerateOptions& options, const GenerateResult& result) {
  return {.set = std::string(facts.set),
          .prompt_id = facts.prompt_id,
          .turn = facts.turn,
          .prompt = {facts.prompt.begin(), facts.prompt.end()},
          .tokens = result.tokens,
          .finish_reason = std::string(name(result.finish_reason)),
          .draw = DrawOptions::of(options),
          .reused_tokens = result.reused_tokens,
          .prefill_seconds = result.prefill_seconds,
          .decode_seconds = result.decode_seconds,
          .rounds = std::exchange(rounds_, {})};
}

}  // namespace espalier
