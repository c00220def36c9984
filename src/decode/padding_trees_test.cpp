#include "decode/padding_trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "device/conformance/sparing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

TEST(PaddingTrees, FillARoundUpToTheNextRecordingButNeverBeyondTheBatch) {
  const SparingDevice device(make_reference_device(), {1, 2, 4, 8, 16});
  EXPECT_EQ(trees_of_round(device, 3, 16), 4);
  EXPECT_EQ(trees_of_round(device, 9, 16), 16);
  EXPECT_EQ(trees_of_round(device, 9, 13), 13) << "there is room for no more";
  EXPECT_EQ(trees_of_round(device, 20, 32), 20) << "nothing is recorded there by its rows";
  EXPECT_EQ(trees_of_round(*make_reference_device(), 9, 16), 9);
}

TEST(PaddingTrees, HaveAsManySlotsAsTheMostThatPadARoundTake) {
  const SparingDevice device(make_reference_device(), {1, 2, 4, 8, 16});
  EXPECT_EQ(padding_tree_slots(device, 2, 40, 16), 0);
  EXPECT_EQ(padding_tree_slots(device, 16, 40, 16), 7 * 48) << "seven beside nine, in whole blocks";
  EXPECT_EQ(padding_tree_slots(device, 13, 40, 16), 4 * 48);
  EXPECT_EQ(padding_tree_slots(*make_reference_device(), 64, 40, 16), 0);
}

TEST(PaddingTrees, WriteSlotsOfTheirOwn) {
  const BlockTables tables({.block_size = 16, .positions = 64, .padding_slots = 3 * 48});
  const PaddingTrees trees(tables, 40);
  std::set<std::int32_t> slots;
  for (std::int64_t tree = 0; tree < 3; ++tree) {
    ASSERT_EQ(trees.blocks(tree).size(), 3U);
    for (std::int64_t place = 0; place < 40; ++place) {
      slots.insert(trees.slot(tree, place));
      EXPECT_EQ(trees.slot(tree, place) / 16, trees.blocks(tree)[static_cast<std::size_t>(place / 16)]);
    }
  }
  EXPECT_EQ(slots.size(), 3U * 40);
}

}  // namespace
}  // namespace espalier
