// One round of the loop, as its listeners see it: traces, statistics and the screen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "decode/drafter.h"
#include "tree/token_tree.h"

namespace espalier {

enum class FinishReason { stop_token, stopped, token_limit, context_limit, cancelled };
std::string_view name(FinishReason reason);  // "stop", "stop", "length", "context", "cancelled"

// Seconds of wall time. Several sequences share a step; each is told the time of the whole.
struct RoundTimes {
  double draft = 0;    // the drafters and the growing of the tree
  double prepare = 0;  // tables, mask and invariants
  double verify = 0;   // the teacher's step, and reading the logits of visited nodes
  double accept = 0;   // the sampler
  double commit = 0;   // cache and drafters
};

// How the rows of a round came about, where they are chosen (budget.h). The chance of every node is in its score.
struct BudgetRound {
  bool drafted = false;                  // the drafters were asked
  std::span<const double> step_seconds;  // of steps of 1, 2, ... rows at the round's context, as they are estimated now
  std::int64_t step_rows = 0;            // of the whole step: those of other sequences included
};

struct Round {
  std::int64_t number = 0;  // of this answer, from 0
  std::int64_t prefix = 0;  // committed tokens before the root
  const TokenTree& tree;
  std::span<const Visit> visits;       // root first: the accepted path, with the teacher's choice at every node
  std::optional<FinishReason> finish;  // the answer ended in this round
  RoundTimes times;
  std::optional<BudgetRound> budget = {};  // nothing where the budget is fixed

  std::int64_t accepted() const { return static_cast<std::int64_t>(visits.size()) - 1; }  // drafted tokens
};

using RoundObserver = std::function<void(const Round&)>;

}  // namespace espalier
