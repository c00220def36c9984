// One round of the loop, as its listeners see it: traces, statistics and the screen.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode/drafter.h"
#include "model/step_tables.h"
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

  double sum() const { return draft + prepare + verify + accept + commit; }
  RoundTimes& operator+=(const RoundTimes& other) {
    draft += other.draft;
    prepare += other.prepare;
    verify += other.verify;
    accept += other.accept;
    commit += other.commit;
    return *this;
  }
  bool operator==(const RoundTimes&) const = default;
};

// How the rows of a round came about, where they are chosen (budget.h). The chance of every node is in its score.
struct BudgetRound {
  bool drafted = false;                  // the drafters were asked
  std::span<const double> step_seconds;  // of steps of 1, 2, ... rows at the round's context, as they are estimated now
  std::int64_t step_rows = 0;            // of the whole step: those of other sequences included
};

// K and V that were copied for a round, in bytes. Both are 0 where a branch shares its prefix and the path is in place.
struct KvTraffic {
  std::int64_t branched = 0;   // to open its branch
  std::int64_t committed = 0;  // to commit its path

  bool operator==(const KvTraffic&) const = default;
};

// Levels of guesses that the teacher judged: one more than it accepted, unless there was none or the answer ended.
std::int64_t judged_levels(const TokenTree& tree, std::span<const Visit> visits, bool ended);
// Counts a round by depth: one more at each of the first `levels`, where counts[0] is of depth 1.
void count_levels(std::int64_t levels, std::vector<std::int64_t>& counts);

struct Round {
  std::int64_t number = 0;  // of this answer, from 0
  std::int64_t prefix = 0;  // committed tokens before the root
  const TokenTree& tree;
  std::span<const Visit> visits;       // root first: the accepted path, with the teacher's choice at every node
  std::optional<FinishReason> finish;  // the answer ended in this round
  RoundTimes times;
  std::optional<BudgetRound> budget = {};  // nothing where the budget is fixed
  KvTraffic kv = {};
  StepForm form = {};  // of the step
  // It stayed on the device (resident_rounds.h): nobody knows the times of its stages, and `verify` is that of drafting
  // and verifying together.
  bool resident = false;

  std::int64_t accepted() const { return static_cast<std::int64_t>(visits.size()) - 1; }  // drafted tokens
};

using RoundObserver = std::function<void(const Round&)>;

}  // namespace espalier
