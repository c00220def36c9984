// kv_write and attention on every device: random trees and prefills of several sequences over random block tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/testing/sanitized.h"
#include "device/conformance/attention_scenario.h"
#include "device/conformance/conformance.h"

namespace espalier {
namespace {

// A call, and the reference device's answer to it.
struct JudgedScenario {
  AttentionScenario scenario;
  std::vector<float> expected;
};

AttentionScenario with_nan_and_infinity(AttentionScenario scenario) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  RandomValues random(201);
  for (std::vector<float>& keys : scenario.k)
    for (float& x : keys)
      if (random.one_in(400)) x = random.one_in(2) ? infinity : random.one_in(2) ? -infinity : nan;
  for (std::vector<float>& values : scenario.v)
    for (float& x : values)
      if (random.one_in(200)) x = random.one_in(2) ? infinity : nan;
  for (float& x : scenario.query)
    if (random.one_in(40)) x *= 1e30f;  // scores far apart, overflowing ones too
  return scenario;
}

class AttentionConformance : public testing::TestWithParam<std::tuple<DeviceUnderTest, DType>> {
 protected:
  DType type() const { return std::get<1>(GetParam()); }

  std::vector<AttentionForm> forms() {
    if (test_.tested().needs_dense_mask()) return {AttentionForm::mask, AttentionForm::eager};
    return {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager};
  }
  std::vector<double> bounds(const AttentionScenario& scenario) const {
    if (test_.exact()) return {};
    return attention_bounds(scenario, type(), 1.0f / std::sqrt(static_cast<float>(scenario.shape.dim)));
  }

  // The same for all devices, and computed once.
  template <typename Change = std::identity>
  const JudgedScenario& judged(const ScenarioShape& shape, std::uint64_t seed, Change change = {}) {
    static std::map<std::tuple<bool, DType, std::uint64_t>, JudgedScenario> all;
    const auto key = std::tuple(test_.has_buckets(), type(), seed);
    const auto found = all.find(key);
    if (found != all.end() && found->second.scenario.shape == shape) return found->second;
    AttentionScenario scenario = change(AttentionScenario(shape, seed));
    std::vector<float> expected = run_attention(test_.judge(), scenario, type(), AttentionForm::lists, 1);
    return all.insert_or_assign(key, JudgedScenario{std::move(scenario), std::move(expected)}).first->second;
  }

  std::vector<ScenarioShape> shapes() const {
    if (test_.has_buckets())
      return {
          {.rows = 16, .sequences = 1, .longest_prefix = 300, .block_size = 128, .kv_heads = 2, .group = 3, .dim = 64},
          {.rows = 8, .sequences = 3, .longest_prefix = 140, .block_size = 256, .kv_heads = 1, .group = 4, .dim = 32},
          {.rows = test_.fewest_rows(),
           .sequences = 1,
           .longest_prefix = 5,
           .block_size = 128,
           .kv_heads = 1,
           .group = 2,
           .dim = 8},
          {.rows = 8, .sequences = 2, .longest_prefix = 150, .block_size = 128, .kv_heads = 2, .group = 1, .dim = 16},
          {.rows = 32, .sequences = 3, .longest_prefix = 20, .window = 9, .block_size = 256, .dim = 24},
          {.rows = 32, .sequences = 2, .shortest_prefix = 120, .longest_prefix = 136, .block_size = 128, .dim = 8},
          {.rows = 8, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 260, .window = 3, .block_size = 128}};
    return {{.rows = 1, .sequences = 1, .longest_prefix = 0, .block_size = 1, .kv_heads = 1, .group = 1, .dim = 1},
            {.rows = 2, .sequences = 1, .longest_prefix = 3, .block_size = 4, .kv_heads = 1, .group = 5, .dim = 5},
            {.rows = 3, .sequences = 3, .longest_prefix = 9, .block_size = 2, .kv_heads = 3, .group = 2, .dim = 31},
            {.rows = 17, .sequences = 2, .longest_prefix = 61, .block_size = 16, .kv_heads = 2, .group = 3, .dim = 64},
            {.rows = 33, .sequences = 4, .longest_prefix = 30, .window = 7, .block_size = 8, .group = 1, .dim = 97},
            {.rows = 7, .sequences = 1, .longest_prefix = 300, .window = 250, .block_size = 128, .dim = 16},
            // Around the beginnings of tiles, with tails that cross them and windows that begin inside the tree.
            {.rows = 19, .sequences = 2, .shortest_prefix = 120, .longest_prefix = 136, .block_size = 16, .dim = 64},
            {.rows = 40, .sequences = 3, .shortest_prefix = 120, .longest_prefix = 136, .group = 4, .dim = 128},
            {.rows = 1, .sequences = 1, .shortest_prefix = 120, .longest_prefix = 136, .block_size = 128, .dim = 64},
            {.rows = 13, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 260, .block_size = 7, .dim = 20},
            {.rows = 24, .sequences = 2, .shortest_prefix = 120, .longest_prefix = 136, .window = 3, .dim = 64},
            {.rows = 24, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 260, .window = 130, .dim = 16},
            // Whole tiles for 18, 33, 24 and 9 pairs of a row and a query head, which fill vectors more or less, and
            // for few of them.
            {.rows = 6, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 300, .kv_heads = 1, .dim = 64},
            {.rows = 11, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 300, .kv_heads = 1, .dim = 128},
            {.rows = 8, .sequences = 1, .shortest_prefix = 257, .longest_prefix = 300, .kv_heads = 1, .dim = 64},
            {.rows = 3, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 300, .kv_heads = 1, .dim = 64},
            {.rows = 1, .sequences = 1, .shortest_prefix = 250, .longest_prefix = 300, .group = 4, .dim = 128}};
  }

  // Where kernels are known to change: masks are forgotten behind key 512, other kernels serve up to 16 rows, and the
  // largest buckets are cut into parts. A device that checks row counts has the next bucket instead of 17.
  std::vector<ScenarioShape> far_shapes() const {
    const auto behind_key_512 = [](std::int64_t rows) {
      return ScenarioShape{.rows = rows,
                           .sequences = 1,
                           .shortest_prefix = 500,
                           .longest_prefix = 700,
                           .block_size = 128,
                           .kv_heads = 1,
                           .group = 2,
                           .dim = 16};
    };
    std::vector<ScenarioShape> shapes = {behind_key_512(test_.row_count(2)), behind_key_512(16),
                                         behind_key_512(test_.exact() ? test_.row_count(17) : 17)};
    if (kSanitized || type() == DType::bf16) return shapes;
    for (const std::int64_t wanted : {std::int64_t{128}, std::numeric_limits<std::int64_t>::max()}) {
      shapes.push_back(behind_key_512(test_.row_count(wanted)));
      shapes.back().group = 1;
    }
    return shapes;
  }

  DeviceTest test_{std::get<0>(GetParam())};
};

// Sanitizers look at code: there the devices that treat all types alike have one of them.

std::vector<std::tuple<DeviceUnderTest, DType>> devices_and_types() {
  std::vector<std::tuple<DeviceUnderTest, DType>> all;
  for (const DeviceUnderTest& device : devices_under_test())
    for (DType type : {DType::f16, DType::bf16, DType::f32})
      if (!kSanitized || type == DType::f16 || device.name.find("cpu") != std::string::npos)
        all.emplace_back(device, type);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Devices, AttentionConformance, testing::ValuesIn(devices_and_types()),
                         [](const testing::TestParamInfo<std::tuple<DeviceUnderTest, DType>>& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
                         });

// Keys nobody may see are NaN throughout, so this also shows that a hidden key enters no sum.
TEST_P(AttentionConformance, AllFormsGiveTheBitsOfTheReferenceListsWhereverTheBlocksLie) {
  std::uint64_t seed = 0, placement = 1;
  for (const ScenarioShape& shape : shapes())
    for (int repeat = 0; repeat < (kSanitized ? 1 : 2); ++repeat) {
      SCOPED_TRACE(testing::Message() << shape.rows << " rows, block size " << shape.block_size << ", seed " << ++seed);
      const auto& [scenario, expected] = judged(shape, seed);
      ASSERT_TRUE(std::ranges::all_of(expected, [](float x) { return std::isfinite(x); }));
      for (AttentionForm form : forms())
        test_.expect_close(run_attention(test_.tested(), scenario, type(), form, ++placement), expected,
                           bounds(scenario));
    }
}

TEST_P(AttentionConformance, BehindKey512AndInTheLargestBucketsItIsStillTheReference) {
  if (!test_.has_buckets()) GTEST_SKIP() << "one kernel for any number of rows and keys";
  std::uint64_t seed = 400;
  for (const ScenarioShape& shape : far_shapes()) {
    SCOPED_TRACE(testing::Message() << shape.rows << " rows, seed " << ++seed);
    const AttentionScenario scenario(shape, seed);
    const std::vector<float> expected = run_attention(test_.judge(), scenario, type(), AttentionForm::lists, 1);
    for (AttentionForm form : forms())
      test_.expect_close(run_attention(test_.tested(), scenario, type(), form, seed), expected, bounds(scenario));
  }
}

TEST_P(AttentionConformance, ARowComputedAloneGivesTheSameBits) {
  std::uint64_t seed = 100;
  for (const ScenarioShape& shape : shapes()) {
    SCOPED_TRACE(testing::Message() << shape.rows << " rows, seed " << ++seed);
    const AttentionScenario scenario(shape, seed);
    const std::vector<float> all =
        run_attention(test_.exact() ? test_.tested() : test_.judge(), scenario, type(), AttentionForm::lists, 3);
    const auto width = static_cast<std::size_t>(shape.heads() * shape.dim);
    for (std::int64_t r = 0; r < shape.rows; r += 1 + shape.rows / 4) {
      const AttentionScenario alone = scenario.only(test_.least_company(r, shape.rows));
      const std::vector<double> allowed = bounds(alone);
      for (AttentionForm form : forms()) {
        const std::vector<float> attended = run_attention(test_.tested(), alone, type(), form, 4);
        test_.expect_close(std::span(attended).first(width),
                           std::span(all).subspan(static_cast<std::size_t>(r) * width, width),
                           std::span(allowed).first(test_.exact() ? 0 : width));
      }
    }
  }
}

TEST_P(AttentionConformance, NanAndInfinityInKeysValuesAndQueries) {
  if (test_.tested().multiplies_hidden_keys()) GTEST_SKIP() << "needs finite numbers in all of its memory";
  std::uint64_t seed = 200;
  for (const ScenarioShape& shape : shapes()) {
    const auto& [scenario, expected] = judged(shape, ++seed, with_nan_and_infinity);
    for (AttentionForm form : forms())
      expect_same_bits(run_attention(test_.tested(), scenario, type(), form, 5), expected);
  }
}

// Bits of KV memory, values that round, overflow and vanish in the stored type included.
TEST_P(AttentionConformance, KvWriteStoresTheRoundedRows) {
  const std::int64_t rows = test_.row_count(17), heads = 3, dim = 5, block_size = 128, blocks = 2;
  RandomValues random(300);
  std::vector<float> k = random.values(rows * heads * dim), v = random.values(rows * heads * dim);
  for (float& x : k)
    if (random.one_in(4)) x *= random.one_in(2) ? 1e5f : 1e-7f;
  std::vector<std::int32_t> slots = random.permutation(blocks * block_size);
  slots.resize(static_cast<std::size_t>(rows));
  const auto stored = [&](Device& device) {
    const PlacedTensor keys = place(device, DType::f32, k, rows), values = place(device, DType::f32, v, rows);
    const PlacedTensor slot = place(device, DType::i32, slots, 1);
    const PlacedTensor kv_k(device, type(), blocks, block_size * heads * dim);
    const PlacedTensor kv_v(device, type(), blocks, block_size * heads * dim);
    device.kv_write(keys.view().reshaped({rows, heads, dim}), values.view().reshaped({rows, heads, dim}),
                    slot.view().reshaped({rows}),
                    {kv_k.view().reshaped({blocks, block_size, heads, dim}),
                     kv_v.view().reshaped({blocks, block_size, heads, dim})});
    std::vector<std::vector<std::uint16_t>> both;
    if (type() == DType::f32) {
      for (const PlacedTensor* memory : {&kv_k, &kv_v}) {
        both.emplace_back();
        for (std::uint32_t bits : memory->values<std::uint32_t>()) {
          both.back().push_back(static_cast<std::uint16_t>(bits));
          both.back().push_back(static_cast<std::uint16_t>(bits >> 16));
        }
      }
    } else {
      both = {kv_k.values<std::uint16_t>(), kv_v.values<std::uint16_t>()};
    }
    return both;
  };
  EXPECT_EQ(stored(test_.tested()), stored(test_.judge()));
}

}  // namespace
}  // namespace espalier
