#include "trace/turn_recorder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace espalier {
namespace {

// Estimates are no better than that, and digits that say nothing would make most of a trace.
double to_tenths_of_microseconds(double seconds) {
  return std::round(seconds * 1e7) / 1e7;
}

TracedBudget traced(const BudgetRound& budget) {
  TracedBudget kept{.drafted = budget.drafted, .step_rows = budget.step_rows, .step_seconds = {}};
  std::ranges::transform(budget.step_seconds, std::back_inserter(kept.step_seconds), to_tenths_of_microseconds);
  return kept;
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
                     .form = round.form,
                     .resident = round.resident});
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
