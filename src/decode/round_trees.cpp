#include "decode/round_trees.h"

#include <algorithm>

#include "base/error.h"
#include "decode/answer.h"
#include "decode/stopwatch.h"

namespace espalier {

void RoundTrees::grow(Answer& answer, RoundBudget& budget, bool ask) const {
  Stopwatch clock(*clock_);
  known_ ? take_known(answer) : guess(answer, budget, ask);
  answer.times.draft = clock.lap();
}

void RoundTrees::take_known(Answer& answer) const {
  answer.tree = known_(answer.path);
  const TokenTree& tree = *answer.tree;
  const int most = max_rows(choices_->tree);
  check(tree[0].token == answer.path.back(), "a tree below token {}, expected one below {}", tree[0].token,
        answer.path.back());
  check(tree.size() <= most, "a tree of {} rows, expected at most {}", tree.size(), most);
  check(answer.lane.length() + tree.size() <= choices_->context, "a tree of {} rows behind {} of {} positions",
        tree.size(), answer.lane.committed.size(), choices_->context);
}

// What the drafters say: no deeper than the answer may still get, and inside the context.
void RoundTrees::guess(Answer& answer, RoundBudget& budget, bool ask) const {
  const std::int64_t room = choices_->context - answer.lane.length();
  const TreeOptions& tree = choices_->tree;
  const auto depth = static_cast<int>(std::min<std::int64_t>({tree.depth, room - 1, answer.tokens_left() - 1}));
  answer.room = static_cast<int>(std::min<std::int64_t>(tree.nodes, room));
  const std::int32_t root = answer.path.back();
  answer.tree.emplace(root);
  if (budget.chooses()) answer.candidates.emplace(root);
  answer.drafted = ask && depth > 0 && answer.room > 1 && !answer.lane.drafters.empty();
  if (answer.drafted) ask_drafters(answer, budget, {.rows = answer.room, .depth = depth, .vocabulary = vocabulary_});
}

void RoundTrees::ask_drafters(Answer& answer, RoundBudget& budget, const RoundLimits& limits) const {
  const DrafterSet& drafters = answer.lane.drafters;
  const std::int32_t root = answer.path.back();
  for (const auto& drafter : drafters) drafter->begin_round(answer.path);
  if (budget.chooses()) {
    LevelBudget levels = budget.levels();
    answer.candidates = grow_candidates(root, choices_->tree, limits, drafters, &levels);
  } else {
    answer.tree = grow_tree(root, choices_->tree, limits, drafters);
  }
}

}  // namespace espalier
