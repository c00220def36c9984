#include "round_ops/round_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace espalier {

std::vector<DeviceUnderTest> devices_with_round_ops() {
  std::vector<DeviceUnderTest> devices = devices_under_test();
  std::erase_if(devices, [](const DeviceUnderTest& device) { return !device.round_ops; });
  return devices;
}

IntTable::IntTable(Device& device, std::int64_t rows, std::int64_t columns, Placement placement)
    : tensor_(device, DType::i32, rows, columns, placement) {}

IntTable::IntTable(Device& device, std::int64_t rows, const Ints& values)
    : tensor_(place(device, DType::i32, values, rows)) {}

View IntTable::list() const {
  return tensor_.view().reshaped({tensor_.view().elements()});
}

FloatList::FloatList(Device& device, const std::vector<float>& values)
    : tensor_(place(device, DType::f32, values, 1)) {}

View FloatList::list() const {
  return tensor_.view().reshaped({tensor_.view().elements()});
}

OwnedNodes::OwnedNodes(Device& device, std::int64_t trees, std::int64_t nodes, std::int64_t gap)
    : trees_(trees),
      nodes_(nodes),
      token_(device, trees, nodes, {.extra_columns = gap}),
      parent_(device, trees, nodes, {.extra_columns = gap}),
      depth_(device, trees, nodes, {.extra_columns = gap}),
      row_(device, trees, nodes, {.extra_columns = gap}),
      score_(device, DType::f64, trees, nodes, {.extra_columns = gap}) {}

NodeTables OwnedNodes::first(std::int64_t nodes) const {
  return {.token = token_.table().columns(0, nodes),
          .parent = parent_.table().columns(0, nodes),
          .depth = depth_.table().columns(0, nodes),
          .score = score_.view().columns(0, nodes),
          .row = row_.table().columns(0, nodes)};
}

void OwnedNodes::fill(const std::vector<TokenTree>& trees) {
  const auto size = static_cast<std::size_t>(trees_ * nodes_);
  Ints token(size), parent(size), depth(size), row(size);
  std::vector<double> score(size);
  for (std::size_t s = 0; s < trees.size(); ++s)
    for (int k = 0; k < trees[s].size(); ++k) {
      const std::size_t i = s * static_cast<std::size_t>(nodes_) + static_cast<std::size_t>(k);
      token[i] = trees[s][k].token;
      parent[i] = trees[s][k].parent;
      depth[i] = trees[s][k].depth;
      score[i] = trees[s][k].score;
    }
  token_.fill(token);
  parent_.fill(parent);
  depth_.fill(depth);
  row_.fill(row);
  score_.fill(score);
}

OwnedGuesses::OwnedGuesses(Device& device, std::int64_t rows, std::int64_t most)
    : token_(device, rows, most), count_(device, 1, rows), log_probability_(device, DType::f64, rows, most) {}

GuessTables OwnedGuesses::all() const {
  return {.token = token_.table(), .log_probability = log_probability_.view(), .count = count_.list()};
}

OwnedRows::OwnedRows(Device& device, std::int64_t rows, std::int64_t ancestor_columns, bool inputs)
    : token(device, 1, rows),
      position(device, 1, rows),
      slot(device, 1, rows),
      sequence(device, 1, rows),
      begin(device, 1, rows),
      end(device, 1, rows),
      ancestor_count(device, 1, rows),
      ancestors(device, rows, ancestor_columns),
      input(device, 1, rows),
      inputs_(inputs) {}

PlacedRows OwnedRows::all() const {
  return {.token = token.list(),
          .position = position.list(),
          .slot = slot.list(),
          .sequence = sequence.list(),
          .begin = begin.list(),
          .end = end.list(),
          .ancestor_count = ancestor_count.list(),
          .ancestors = ancestors.table(),
          .input = inputs_ ? input.list() : View()};
}

std::vector<float> awkward_logits(RandomValues& random, std::int64_t n) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kAwkward[] = {0.0f, -0.0f, 2.0f, -3e38f, -kInfinity, kNan};
  std::vector<float> logits = random.values(n);
  if (random.one_in(2))  // a few values, so that there are ties
    for (float& x : logits) x = 0.5f * static_cast<float>(random.below(5));
  for (float& x : logits)
    if (random.one_in(8)) x = kAwkward[random.below(std::size(kAwkward))];
  if (random.one_in(40)) logits[static_cast<std::size_t>(random.below(n))] = kInfinity;
  if (random.one_in(40)) std::ranges::fill(logits, random.one_in(2) ? kNan : -kInfinity);
  return logits;
}

void expect_tree(const OwnedNodes& tables, std::int64_t tree, std::int64_t rows, const TokenTree& expected) {
  const Ints token = tables.tokens(), parent = tables.parents(), depth = tables.depths();
  const std::vector<double> score = tables.scores();
  ASSERT_LE(expected.size(), rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(tree * rows + r);
    const TreeNode node = r < expected.size() ? expected[static_cast<int>(r)] : TreeNode{};
    ASSERT_EQ(token[i], node.token) << "row " << r << " of " << expected.size();
    ASSERT_EQ(parent[i], node.parent) << "row " << r;
    ASSERT_EQ(depth[i], node.depth) << "row " << r;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(score[i]), std::bit_cast<std::uint64_t>(node.score))
        << "row " << r << ": got " << score[i] << ", expected " << node.score;
  }
}

}  // namespace espalier
