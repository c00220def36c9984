#include "tree/tree_tensors.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace espalier {
namespace {

void allocate(TreeTensors& t, std::int32_t pad_token) {
  const auto rows = static_cast<std::size_t>(t.rows), levels = static_cast<std::size_t>(t.levels);
  t.token.assign(rows, pad_token);
  t.parent.assign(rows, 0);
  t.depth.assign(rows, 0);
  t.position.assign(rows, 0);
  t.valid.assign(rows, 0);
  t.ancestor.assign(levels * rows, 0);
  t.path.assign(rows * levels, 0);
}

void copy_nodes(const TokenTree& tree, TreeTensors& t) {
  for (std::size_t k = 0; k < tree.nodes().size(); ++k) {
    const TreeNode& node = tree.nodes()[k];
    t.token[k] = node.token;
    t.parent[k] = node.parent;
    t.depth[k] = node.depth;
    t.position[k] = t.prefix + node.depth;
    t.valid[k] = 1;
  }
}

void fill_ancestors(TreeTensors& t) {
  const auto rows = static_cast<std::size_t>(t.rows);
  std::iota(t.ancestor.begin(), t.ancestor.begin() + t.rows, 0);
  for (std::size_t entry = rows; entry < t.ancestor.size(); ++entry)
    t.ancestor[entry] = t.parent[static_cast<std::size_t>(t.ancestor[entry - rows])];
}

// A path is the parent's path and then the row itself; parents stand before their children.
void fill_paths(TreeTensors& t) {
  const auto levels = static_cast<std::size_t>(t.levels);
  for (std::size_t k = 0; k < t.parent.size(); ++k) {
    std::int32_t* const path = t.path.data() + k * levels;
    const std::int32_t* const above = t.path.data() + static_cast<std::size_t>(t.parent[k]) * levels;
    std::copy_n(above, t.depth[k], path);
    std::fill(path + t.depth[k], path + levels, static_cast<std::int32_t>(k));
  }
}

}  // namespace

std::span<const std::int32_t> TreeTensors::ancestors(int row) const {
  return std::span(path).subspan(static_cast<std::size_t>(row) * static_cast<std::size_t>(levels),
                                 static_cast<std::size_t>(depth[static_cast<std::size_t>(row)]));
}

bool TreeTensors::sees(int row, int column) const {
  if (row == column) return true;
  const auto above = ancestors(row);
  const auto level = static_cast<std::size_t>(depth[static_cast<std::size_t>(column)]);
  return level < above.size() && above[level] == column;
}

TreeTensors tensorize(const TokenTree& tree, const TensorOptions& options) {
  TreeTensors t;
  t.prefix = options.prefix;
  t.nodes = tree.size();
  t.rows = options.rows == 0 ? tree.size() : options.rows;
  t.levels = (options.depth == 0 ? tree.depth() : options.depth) + 1;
  check(t.rows >= t.nodes, "tree tensors: {} rows for {} nodes", t.rows, t.nodes);
  check(t.levels > tree.depth(), "tree tensors: depth {} for a tree of depth {}", t.levels - 1, tree.depth());
  check(t.prefix >= 0 && t.prefix <= std::numeric_limits<std::int32_t>::max() - t.levels - t.rows,
        "tree tensors: a prefix of {} tokens", t.prefix);
  allocate(t, options.pad_token);
  copy_nodes(tree, t);
  fill_ancestors(t);
  fill_paths(t);
  return t;
}

std::vector<std::uint8_t> visibility(const TreeTensors& tensors) {
  const auto rows = static_cast<std::size_t>(tensors.rows);
  std::vector<std::uint8_t> sees(rows * rows, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    std::uint8_t* const columns = sees.data() + row * rows;
    for (std::int32_t above : tensors.ancestors(static_cast<int>(row))) columns[above] = 1;
    columns[row] = 1;
  }
  return sees;
}

}  // namespace espalier
