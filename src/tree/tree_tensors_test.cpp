#include "tree/tree_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>

#include "tree/choice_tree.h"
#include "tree/static_growth.h"
#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Rows a node sees within the tree, by walking up the tree.
std::set<int> path_to_root(const TokenTree& tree, int node) {
  std::set<int> path = {node};
  while (node != 0) path.insert(node = tree[node].parent);
  return path;
}

TokenTree medusa_example() {
  const std::vector<std::vector<DraftToken>> heads = {{{201, -1}, {202, -2}}, {{301, -1}, {302, -2}}, {{401, -1}}};
  const ChoiceTree shape({{0}, {0, 0}, {1}, {0, 1}, {0, 0, 0}}, {}, "example");
  StaticGrowth growth(100, shape, 1);
  while (!growth.done())
    for (int node : std::vector<int>(growth.frontier()))
      growth.add_children(node, heads[static_cast<std::size_t>(growth.candidates()[node].depth)]);
  return growth.finish();
}

TEST(TreeTensors, HoldTheTablesOfMedusasExample) {
  const TreeTensors t = tensorize(medusa_example(), 40);
  EXPECT_THAT(t.token, ElementsAre(100, 201, 202, 301, 302, 401));
  EXPECT_THAT(t.parent, ElementsAre(0, 0, 0, 1, 1, 3));
  EXPECT_THAT(t.depth, ElementsAre(0, 1, 1, 2, 2, 3));
  EXPECT_THAT(t.position, ElementsAre(40, 41, 41, 42, 42, 43));
  EXPECT_THAT(t.path, ElementsAreArray({0, 0, 0, 0,  //
                                        0, 1, 1, 1,  //
                                        0, 2, 2, 2,  //
                                        0, 1, 3, 3,  //
                                        0, 1, 4, 4,  //
                                        0, 1, 3, 5}));
}

// Medusa's retrieve_indices: leaves in descending order, their paths filled with -1. Our paths say the same without.
TEST(TreeTensors, PathsOfLeavesAreMedusasRetrieveIndices) {
  const TokenTree tree = medusa_example();
  const TreeTensors t = tensorize(tree, 0);
  std::vector<std::vector<int>> rows;
  const std::vector<int> leaves = tree.leaves();
  for (auto leaf = leaves.rbegin(); leaf != leaves.rend(); ++leaf) {
    const auto above = t.ancestors(*leaf);
    std::vector<int>& row = rows.emplace_back(above.begin(), above.end());
    row.push_back(*leaf);
    row.resize(static_cast<std::size_t>(t.levels), -1);
  }
  EXPECT_THAT(rows, ElementsAre(ElementsAre(0, 1, 3, 5), ElementsAre(0, 1, 4, -1), ElementsAre(0, 2, -1, -1)));
}

TEST(TreeTensors, RefuseAPrefixThatNoPositionCouldFollow) {
  EXPECT_THROW(tensorize(medusa_example(), -1), std::logic_error);
  EXPECT_THROW(tensorize(medusa_example(), 2147483647), std::logic_error);
}

TEST(TreeTensors, EveryNodeSeesExactlyItsPathToTheRoot) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    const TokenTree tree = random_tree(seed, 1 + static_cast<int>(seed * 91 % 256));
    const TreeTensors t = tensorize(tree, 11);
    for (int row = 0; row < tree.size(); ++row) {
      const std::set<int> path = path_to_root(tree, row);
      std::vector<int> above(path.begin(), path.end());  // ascending rows are ascending depths
      above.pop_back();
      ASSERT_THAT(t.ancestors(row), ElementsAreArray(above));
    }
  }
}

TEST(TreeTensors, NoEntryLeavesTheRows) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const TreeTensors t = tensorize(random_tree(seed, 1 + static_cast<int>(seed * 53 % 256)), 0);
    for (const auto* table : {&t.parent, &t.path})
      ASSERT_TRUE(std::all_of(table->begin(), table->end(), [&](std::int32_t i) { return i >= 0 && i < t.nodes; }));
  }
}

}  // namespace
}  // namespace espalier
