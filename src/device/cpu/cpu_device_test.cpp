// What the conformance suite is too small to reach: calls cut into several waves or passes, and work large enough that
// threads share it out in other ways. Everything is compared with the reference device bit by bit.
#include "device/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include "device/conformance/attention_scenario.h"
#include "device/conformance/placed_tensor.h"
#include "device/conformance/random_values.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

std::vector<CpuOptions> all_options() {
  std::vector<CpuOptions> options;
  for (const Isa isa : supported_isas())
    for (const int threads : {1, 2, 4}) options.push_back({threads, isa});
  return options;
}

void expect_same_attention(const ScenarioShape& shape, DType type, std::uint64_t seed) {
  const AttentionScenario scenario(shape, seed);
  const auto judge = make_reference_device(2);
  const auto expected = run_attention(*judge, scenario, type, AttentionForm::lists, seed);
  for (const CpuOptions& options : all_options()) {
    SCOPED_TRACE(testing::Message() << name(*options.isa) << ", " << options.threads << " threads");
    const auto device = make_cpu_device(options);
    expect_same_bits(run_attention(*device, scenario, type, AttentionForm::lists, seed + 1), expected);
    expect_same_bits(run_attention(*device, scenario, type, AttentionForm::mask, seed + 2), expected);
  }
}

TEST(CpuDevice, OneRowOverALongContext) {
  for (const DType type : {DType::f16, DType::f32})
    expect_same_attention(
        {.rows = 1, .sequences = 1, .longest_prefix = 3000, .block_size = 128, .kv_heads = 3, .dim = 64}, type, 5);
}

TEST(CpuDevice, ATreeOverALongContextInSeveralTiles) {
  expect_same_attention(
      {.rows = 40, .sequences = 1, .longest_prefix = 900, .block_size = 128, .kv_heads = 1, .dim = 128}, DType::f16, 7);
}

TEST(CpuDevice, AttentionInSeveralWaves) {
  expect_same_attention(
      {.rows = 100, .sequences = 3, .longest_prefix = 2500, .block_size = 64, .kv_heads = 4, .dim = 16}, DType::bf16,
      9);
}

TEST(CpuDevice, MoreRowsThanOnePassOfALinear) {
  RandomValues random(11);
  const std::int64_t rows = 300, inputs = 256, outputs = 35;
  const auto x = random.values(rows * inputs);
  for (const DType type : kLinearTypes) {
    const auto bytes = random.weight(type, outputs, inputs);
    const WeightPart part{type, outputs, inputs, bytes};
    const auto run = [&](Device& device) {
      const PlacedTensor input = place(device, DType::f32, x, rows, {.offset_bytes = 4, .extra_columns = 3});
      const PlacedTensor y(device, DType::f32, rows, outputs, {.offset_bytes = 4, .extra_columns = 5});
      const auto weight = device.load_weight(std::span(&part, 1));
      const Projection projection{weight.get(), {}, y.view()};
      device.linear(input, std::span(&projection, 1));
      return y.values<float>();
    };
    const auto expected = run(*make_reference_device());
    for (const CpuOptions& options : all_options()) expect_same_bits(run(*make_cpu_device(options)), expected);
  }
}

// A whole sequence moved up by one slot: copied one after the other, each slot would be overwritten before it is read.
TEST(CpuDevice, ManySlotsAreReadBeforeAnyIsWritten) {
  constexpr std::int64_t kSlots = 512, kWidth = 2 * 16;
  RandomValues random(13);
  const auto k = random.values(kSlots * kWidth), v = random.values(kSlots * kWidth);
  std::vector<std::int32_t> from, to;
  for (std::int32_t slot = 0; slot + 1 < kSlots; ++slot) {
    from.push_back(slot);
    to.push_back(slot + 1);
  }
  const auto run = [&](Device& device) {
    const Tensor k_memory = device.tensor(DType::f32, {4, 128, 2, 16}),
                 v_memory = device.tensor(DType::f32, {4, 128, 2, 16});
    upload<float>(device, k, k_memory);
    upload<float>(device, v, v_memory);
    const auto count = static_cast<std::int64_t>(from.size());
    const Tensor sources = device.tensor(DType::i32, {count}), targets = device.tensor(DType::i32, {count});
    upload<std::int32_t>(device, from, sources);
    upload<std::int32_t>(device, to, targets);
    const KvViews layer{k_memory, v_memory};
    device.kv_copy({&layer, 1}, sources, targets);
    std::vector<float> both(2 * k.size());
    download<float>(device, k_memory, std::span(both).first(k.size()));
    download<float>(device, v_memory, std::span(both).last(v.size()));
    return both;
  };
  const auto expected = run(*make_reference_device());
  for (const CpuOptions& options : all_options()) expect_same_bits(run(*make_cpu_device(options)), expected);
}

}  // namespace
}  // namespace espalier
