// A tree that grows where the drafter is sure, as in EAGLE-2: the growth itself, without a drafter.
//
// Level by level, only the `expand` best nodes of the last level get children, `branch` each. The object says which
// nodes it wants expanded, is told their children, and says when it is done; the drafter's passes happen outside:
//
//   DynamicGrowth growth(root, {.nodes = 16, .depth = 6, .expand = 4}, source);
//   while (!growth.done())
//     for (int node : std::vector(growth.frontier()))            // one draft pass over all of them
//       growth.add_children(node, top_of_the_drafter(node));
//   TokenTree tree = growth.finish();
//
// Growth ends after `depth` levels, when there is nothing left to expand, or when the result is settled: `nodes` - 1
// candidates exist and no node of the frontier scores above the lowest of the `nodes` - 1 best. Whatever could still be
// added would score no higher than that one and be younger than all of them, so the tree would stay the same
// (docs/trees.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tree/candidates.h"
#include "tree/token_tree.h"

namespace espalier {

struct GrowthOptions {
  int nodes = 16;  // rows of the final tree, root included; 1 is plain decoding, 2 is one pass and one guess
  int depth = 6;   // levels below the root, which is also the largest number of draft passes
  int expand = 4;  // nodes of a level that get children
  int branch = 0;  // children of an expanded node; 0: as many as `expand`
};

class DynamicGrowth {
 public:
  DynamicGrowth(std::int32_t root, const GrowthOptions& options, SourceSet sources);

  // Whether the tree is settled: no pass is wanted any more.
  bool done() const { return frontier_.empty(); }
  // The candidates to expand in the next pass, best first: the root before the first pass, none when done. The vector
  // changes when the last of them has its children.
  const std::vector<int>& frontier() const { return frontier_; }
  // The `branch` best guesses for the token after `node`, or fewer. Nodes come in the order of the frontier, each once.
  void add_children(int node, std::span<const DraftToken> children);

  // Levels grown so far, which is the number of draft passes taken.
  int levels() const { return levels_; }
  // How many children to ask the drafter for.
  int branch() const { return options_.branch; }
  // Everything proposed so far, to look up a node's token, parent and depth or to unite with another drafter's.
  const Candidates& candidates() const { return candidates_; }
  // The best `nodes` candidates as a tree; fewer where there are not as many.
  TokenTree finish() const { return candidates_.best(options_.nodes); }

 private:
  void close_level();
  void keep_best_scores();
  bool settled(int best_of_level) const;
  std::vector<int> best_of_level() const;

  const GrowthOptions options_;
  const SourceSet sources_;
  Candidates candidates_;
  std::vector<double> best_scores_;  // the `nodes` - 1 best of closed levels; the lowest last, once there are so many
  std::vector<int> frontier_;
  std::size_t expanded_ = 0;  // how many of the frontier have their children
  int level_begin_ = 1;       // the first candidate of the level that is being added
  int levels_ = 0;
};

}  // namespace espalier
