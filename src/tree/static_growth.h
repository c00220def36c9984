// A tree of a fixed shape, filled level by level: the protocol of dynamic_growth.h over a choice tree, so that the same
// loop drives either.
//
//   StaticGrowth growth(root, shape, source);
//   while (!growth.done())
//     for (int node : std::vector(growth.frontier()))            // one draft pass over all of them
//       growth.add_children(node, top_of_the_drafter(node));
//   TokenTree tree = growth.finish();
//
// The frontier of a level are its candidates below which the shape has rows; of the guesses for a candidate, those take
// part whose rank the shape names. A rank beyond the guesses, or a token that a sibling of lower rank carries already,
// leaves its row out with everything below. Candidates stand in the order of the shape's rows: where nothing is left
// out, candidate, node and row are one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tree/candidates.h"
#include "tree/choice_tree.h"
#include "tree/token_tree.h"

namespace espalier {

class StaticGrowth {
 public:
  // `shape` must outlive the growth.
  StaticGrowth(std::int32_t root, const ChoiceTree& shape, SourceSet sources);

  // Whether the tree is complete: no pass is wanted any more.
  bool done() const { return frontier_.empty(); }
  // The candidates to expand in the next pass: the root before the first pass, none when done. The vector changes when
  // the last of them has its children.
  const std::vector<int>& frontier() const { return frontier_; }
  // The `branch` best guesses for the token after `node`, best first, or fewer. Nodes come in the order of the
  // frontier, each once.
  void add_children(int node, std::span<const DraftToken> children);

  // Levels grown so far, which is the number of draft passes taken.
  int levels() const { return levels_; }
  // How many children to ask the drafter for: one more than the highest rank in the shape, on every level.
  int branch() const { return shape_->ranks(); }
  // Everything proposed so far, to look up a node's token, parent and depth or to unite with another drafter's.
  const Candidates& candidates() const { return candidates_; }
  // All candidates as a tree, in the order of the shape's rows.
  TokenTree finish() const;

 private:
  int row(int node) const { return row_[static_cast<std::size_t>(node)]; }
  void close_level();

  const ChoiceTree* shape_;
  SourceSet sources_;
  Candidates candidates_;
  std::vector<int> row_ = {0};  // the shape's row of each candidate
  std::vector<int> frontier_;
  std::size_t expanded_ = 0;  // how many of the frontier have their children
  int level_begin_ = 1;       // the first candidate of the level that is being added
  int levels_ = 0;
};

}  // namespace espalier
