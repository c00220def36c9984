#include "tree/tree_tensors.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

void copy_nodes(const TokenTree& tree, TreeTensors& t) {
  for (auto* table : {&t.token, &t.parent, &t.depth, &t.position}) {
    table->clear();
    table->reserve(tree.nodes().size());
  }
  for (const TreeNode& node : tree.nodes()) {
    t.token.push_back(node.token);
    t.parent.push_back(node.parent);
    t.depth.push_back(node.depth);
    t.position.push_back(t.prefix + node.depth);
  }
}

// A path is the parent's path and then the row itself; parents stand before their children.
void fill_paths(TreeTensors& t) {
  const auto levels = static_cast<std::size_t>(t.levels);
  t.path.resize(t.parent.size() * levels);
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

TreeTensors tensorize(const TokenTree& tree, std::int32_t prefix, TreeTensors used) {
  TreeTensors t = std::move(used);
  t.prefix = prefix;
  t.nodes = tree.size();
  t.levels = tree.depth() + 1;
  check(prefix >= 0 && prefix <= std::numeric_limits<std::int32_t>::max() - t.levels - t.nodes,
        "tree tensors: a prefix of {} tokens", prefix);
  copy_nodes(tree, t);
  fill_paths(t);
  return t;
}

}  // namespace espalier
