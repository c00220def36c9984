// Attention where its kernels part ways: by the number of a row's tiles, by the number of all tiles, by heads.
#include <gtest/gtest.h>

#include "device/conformance/attention_scenario.h"
#include "device/conformance/placed_tensor.h"
#include "device/cuda/emulated/emulated_cuda_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

ScenarioShape one_row(std::int64_t prefix, std::int64_t kv_heads, std::int64_t group, std::int64_t dim) {
  return {.rows = 1,
          .sequences = 1,
          .shortest_prefix = prefix,
          .longest_prefix = prefix,
          .block_size = 128,
          .kv_heads = kv_heads,
          .group = group,
          .dim = dim};
}

void expect_bits_of_the_reference(const ScenarioShape& shape, bool small_blocks = false) {
  const auto emulated = make_emulated_cuda_device({.small_blocks = small_blocks}), reference = make_reference_device();
  const AttentionScenario scenario(shape, 7);
  for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask}) {
    SCOPED_TRACE(testing::Message() << shape.rows << " rows behind " << shape.longest_prefix << ", heads of "
                                    << shape.dim << ", " << (form == AttentionForm::lists ? "lists" : "mask"));
    expect_same_bits(run_attention(*emulated, scenario, DType::f16, form, 3),
                     run_attention(*reference, scenario, DType::f16, AttentionForm::lists, 3));
  }
}

TEST(EmulatedAttention, ARowOfFewTilesHasTheBitsOfTheReference) {
  for (const std::int64_t dim : {64, 96, 128})
    for (const std::int64_t prefix : {0, 5, 126, 127, 128, 140, 255, 256, 300})
      expect_bits_of_the_reference(one_row(prefix, 2, 3, dim));
}

TEST(EmulatedAttention, ARowOfMoreTilesThanAWarpHasLanesHasTheBitsOfTheReference) {
  for (const std::int64_t prefix : {1000, 2050, 4300}) expect_bits_of_the_reference(one_row(prefix, 1, 2, 64));
  expect_bits_of_the_reference(one_row(4200, 1, 1, 96));
}

TEST(EmulatedAttention, MoreHeadsThanABlockTakesAreSharedOut) {
  expect_bits_of_the_reference(one_row(400, 1, 7, 64));   // one at once
  expect_bits_of_the_reference(one_row(400, 16, 4, 64));  // two
  expect_bits_of_the_reference(one_row(500, 20, 5, 64));  // three
  expect_bits_of_the_reference(one_row(600, 50, 5, 64));  // four
}

TEST(EmulatedAttention, ManyTilesHaveTheBitsOfTheReference) {
  ScenarioShape shape = one_row(700, 3, 2, 64);
  shape.rows = 40;
  expect_bits_of_the_reference(shape);
}

TEST(EmulatedAttention, ItNeedsNoLargeBlocks) {
  for (const std::int64_t prefix : {100, 200, 700}) expect_bits_of_the_reference(one_row(prefix, 2, 4, 128), true);
}

}  // namespace
}  // namespace espalier
