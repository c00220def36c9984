#include "tree/dense_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>

#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

TEST(DenseMask, ColumnsAreTheSmallestMultipleOf128) {
  EXPECT_EQ(mask_columns(0, 1), 128);
  EXPECT_EQ(mask_columns(127, 1), 128);
  EXPECT_EQ(mask_columns(127, 2), 256);
  EXPECT_EQ(mask_columns(2147483647, 1), 2147483648);
}

TEST(DenseMask, HidesWithOneAndKeepsWithZero) {
  TokenTree tree(7);
  tree.append(0, {.token = 1});
  tree.append(0, {.token = 2});
  const TreeTensors tensors = tensorize(tree, {.prefix = 3, .rows = 4});
  const auto hidden = dense_mask(tensors, {.begin = 1});
  ASSERT_EQ(hidden.size(), 4u * 128u);
  const auto row = [&](int k) {
    std::string text;
    for (int column = 0; column < 9; ++column) text += hidden[static_cast<std::size_t>(k * 128 + column)] ? '#' : '.';
    return text;
  };
  EXPECT_EQ(row(0), "#...#####");  // position 0 is before the window
  EXPECT_EQ(row(1), "#....####");
  EXPECT_EQ(row(2), "#...#.###");
  EXPECT_EQ(row(3), "######.##");  // padding: its own column alone
}

TEST(DenseMask, AWindowCountsTheRowItself) {
  TokenTree tree(7);
  tree.append(0, {.token = 1});
  tree.append(1, {.token = 2});
  tree.append(2, {.token = 3});
  const TreeTensors tensors = tensorize(tree, {.prefix = 3, .rows = 5});
  const auto rows = [&](const MaskOptions& options) {
    const auto hidden = dense_mask(tensors, options);
    std::string text;
    for (int k = 0; k < 5; ++k) {
      for (int column = 0; column < 9; ++column) text += hidden[static_cast<std::size_t>(k * 128 + column)] ? '#' : '.';
      text += '\n';
    }
    return text;
  };
  EXPECT_EQ(rows({.window = 3}),
            "#...#####\n"
            "##...####\n"
            "###...###\n"  // the committed positions have left the window
            "####...##\n"  // and now the root has
            "#######.#\n");
  EXPECT_EQ(rows({.window = 1}),
            "###.#####\n"
            "####.####\n"
            "#####.###\n"
            "######.##\n"
            "#######.#\n");
  EXPECT_EQ(rows({.begin = 2, .window = 4}),
            "##..#####\n"
            "##...####\n"
            "##....###\n"
            "###....##\n"
            "#######.#\n");
  EXPECT_EQ(rows({.window = 2147483647}), rows({}));
}

// The position that a column stands for.
std::int32_t position(const TreeTensors& tensors, std::int32_t column) {
  const std::int32_t node = column - tensors.prefix;
  if (node < 0 || node >= tensors.rows) return column;
  return tensors.prefix + tensors.depth[static_cast<std::size_t>(node)];
}

TEST(DenseMask, ShowsEachRowItsWindowItsPathAndNothingElse) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const TokenTree tree = random_tree(seed, 1 + static_cast<int>(seed * 67 % 256));
    const std::int32_t prefix = static_cast<std::int32_t>(seed * 31 % 300);
    const std::int32_t begin = seed % 2 ? prefix / 3 : 0;
    const TreeTensors t = tensorize(tree, {.prefix = prefix, .rows = tree.size() + static_cast<int>(seed % 4)});
    const auto columns = static_cast<std::int32_t>(mask_columns(prefix, t.rows)) + (seed % 3 == 0 ? 128 : 0);
    const std::int32_t window = seed % 5 == 0 ? 1 + static_cast<std::int32_t>(seed * 13 % 90) : 0;
    const auto hidden = dense_mask(t, {.begin = begin, .window = window, .columns = columns});
    ASSERT_EQ(hidden.size(), static_cast<std::size_t>(columns) * static_cast<std::size_t>(t.rows));
    for (int row = 0; row < t.rows; ++row) {
      bool any = false;
      for (std::int32_t column = 0; column < columns; ++column) {
        const int node = column - prefix;
        const bool in_window =
            window == 0 || row >= t.nodes || position(t, column) > position(t, prefix + row) - window;
        const bool known = node < 0 ? row < t.nodes && column >= begin : node < t.rows && t.sees(row, node);
        const bool visible = known && in_window;
        const auto at = static_cast<std::size_t>(row) * static_cast<std::size_t>(columns);
        ASSERT_EQ(hidden[at + static_cast<std::size_t>(column)], visible ? 0 : 1) << row << " " << column;
        any = any || visible;
      }
      ASSERT_TRUE(any) << "row " << row << " is hidden completely";
    }
  }
}

// Medusa's property: the tree part has depth + 1 visible columns for each row.
TEST(DenseMask, HasAsManyVisibleTreeColumnsAsThereAreNodesOnPaths) {
  const TokenTree tree = random_tree(4, 64);
  const TreeTensors t = tensorize(tree, {.prefix = 0});
  const auto hidden = dense_mask(t, {});
  const auto visible = std::count(hidden.begin(), hidden.end(), 0);
  EXPECT_EQ(visible, std::accumulate(t.depth.begin(), t.depth.end(), 64));
}

TEST(DenseMask, RefusesColumnsThatDoNotFit) {
  const TreeTensors t = tensorize(TokenTree(7), {.prefix = 128});
  EXPECT_THROW(dense_mask(t, {.columns = 128}), std::logic_error);
  EXPECT_THROW(dense_mask(t, {.columns = 300}), std::logic_error);
  EXPECT_THROW(dense_mask(t, {.begin = 129}), std::logic_error);
  EXPECT_THROW(dense_mask(t, {.begin = -1}), std::logic_error);
  EXPECT_THROW(dense_mask(t, {.window = -1}), std::logic_error);
  std::vector<std::uint8_t> small(255);
  EXPECT_THROW(write_dense_mask(t, {}, small), std::logic_error);
}

}  // namespace
}  // namespace espalier
