#include "decode/draft_rows.h"

#include <algorithm>

namespace espalier {
namespace {

constexpr std::int64_t kPrefillRows = 32;

}  // namespace

std::int64_t widest_level(const TreeOptions& tree) {
  switch (tree.shape) {
    case TreeShape::chain: return 1;
    case TreeShape::fixed: return tree.choices->widest_level();
    case TreeShape::dynamic: return tree.expand;
  }
  return 1;
}

std::int64_t expanded_rows(const TreeOptions& tree) {
  if (tree.shape == TreeShape::fixed) return tree.choices->size();  // all but the leaves, at most
  return std::max<std::int64_t>(1, widest_level(tree) * (tree.depth - 1));
}

std::int64_t branch_rows(const TreeOptions& tree) {
  // A round that stays on the device has a row for every position that the last one may have committed.
  return std::max<std::int64_t>({max_rows(tree), 1 + expanded_rows(tree), tree.depth + 1});
}

std::int64_t most_guesses(const TreeOptions& tree) {
  switch (tree.shape) {
    case TreeShape::chain: return 1;
    case TreeShape::fixed: return std::max<std::int64_t>(1, tree.choices->ranks());
    case TreeShape::dynamic: return tree.branch == 0 ? tree.expand : tree.branch;
  }
  return 1;
}

std::int64_t candidate_nodes(const TreeOptions& tree) {
  if (tree.shape == TreeShape::fixed) return tree.choices->size();
  return 1 + most_guesses(tree) * (1 + (tree.depth - 1) * widest_level(tree));
}

std::int64_t draft_step_rows(const Device& device, const TreeOptions& tree, int sequences) {
  return largest_step(device, std::max(kPrefillRows, widest_level(tree) * sequences));
}

}  // namespace espalier
