// What must hold of a tree's tables before they reach a device, checked from the parent table alone, so that a mistake
// in how the other tables were made cannot hide itself. Reference mode checks every launch, --invariants others too.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tree/token_tree.h"
#include "tree/tree_tensors.h"

namespace espalier {

enum class TreeRule : std::uint8_t {
  shape,     // every table has the size that nodes and levels say
  range,     // every entry is an index: parents and paths in [0, nodes), tokens and positions below their limits
  root,      // row 0 is its own parent, at depth 0
  order,     // parents stand before their children and in their children's order: breadth-first, no cycles
  depth,     // one more than the parent's, below `levels`, and the root is reached in exactly so many steps
  siblings,  // children of one node carry different tokens
  position,  // prefix + depth
  path,      // the parents of the row, root first, then the row itself to the end
  tree,      // tokens and parents are those of the tree
  slot,      // a row writes the slot of its place and lists those of its ancestors, after the context of its prefix
  mask,      // hides exactly what a row does not see
  padding,   // rows behind the trees of a step hold token 0 at position 0, write a padding slot and see only themselves
};

std::string_view name(TreeRule rule);

// Our own mistake, with what is needed to see it: the rule, the first row that breaks it, and in the message what was
// expected and got, followed by the rows of the tree.
class TreeViolation : public std::logic_error {
 public:
  TreeViolation(TreeRule rule, int row, std::string_view what, const TreeTensors& tensors);
  TreeRule rule() const { return rule_; }
  int row() const { return row_; }

 private:
  TreeRule rule_;
  int row_;
};

// Where the outside world ends.
struct TreeLimits {
  std::int32_t vocabulary = std::numeric_limits<std::int32_t>::max();  // token ids lie below
  std::int32_t positions = std::numeric_limits<std::int32_t>::max();   // positions lie below: rows of the rope table
};

// Throws TreeViolation unless the tables obey every rule up to `path`.
void check_tensors(const TreeTensors& tensors, const TreeLimits& limits = {});
// Throws TreeViolation unless the tables, which check_tensors accepts, are those of `tree`.
void check_tensors_match(const TreeTensors& tensors, const TokenTree& tree);

// The rows as a table of text, one line each; any content can be shown, wrong sizes too.
std::string render(const TreeTensors& tensors);

}  // namespace espalier
