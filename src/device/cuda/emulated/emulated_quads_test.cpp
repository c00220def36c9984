// Linears of bf16 and f16 weights by quads of warps: the bits of the kernels for single warps, and products shared out
// evenly.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <tuple>

#include "device/cuda/emulated/emulated_cuda_device.h"
#include "device/cuda/even_share.h"

namespace espalier {
namespace {

struct QuadLinearShape {
  std::int64_t rows, outputs, inputs;
};

// As many tiles as every kernel has and one fewer, groups that fill no quad and more than one, no chunk that is full,
// fewer chunks than strands, and products that are whole, apart, and both.
constexpr QuadLinearShape kQuadShapes[] = {
    {2, 40, 640},   {8, 130, 520},  {9, 5, 130},    {16, 300, 641}, {17, 70, 1024}, {30, 40, 384}, {33, 100, 260},
    {64, 200, 260}, {65, 210, 257}, {128, 40, 640}, {150, 70, 128}, {12, 600, 260}, {40, 16, 2600}};

std::string name_of_quads(const testing::TestParamInfo<std::tuple<DType, Activations>>& info) {
  return std::string(name(std::get<0>(info.param))) + "_" +
         (std::get<1>(info.param) == Activations::bf16 ? "one_term" : "two_terms");
}

class EmulatedQuads : public testing::TestWithParam<std::tuple<DType, Activations>> {
 protected:
  std::vector<std::byte> random_weight(const QuadLinearShape& shape) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(shape.outputs * row_bytes(type(), shape.inputs)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_() % 64);  // no exponent is all ones
    return bytes;
  }
  std::vector<float> random_numbers(std::int64_t count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& value : x) value = std::uniform_real_distribution<float>(-1, 1)(random_);
    return x;
  }
  std::vector<float> outputs(Device& device, const QuadLinearShape& shape, std::span<const std::byte> weight,
                             std::span<const float> rows, std::span<const float> biases) {
    const WeightPart part{type(), shape.outputs, shape.inputs, weight};
    const auto loaded = device.load_weight({&part, 1});
    const Tensor x = device.tensor(DType::f32, {shape.rows, shape.inputs}),
                 y = device.tensor(DType::f32, {shape.rows, shape.outputs}),
                 bias = device.tensor(DType::f32, {shape.outputs});
    upload<float>(device, rows, x);
    upload<float>(device, biases, bias);
    const Projection projection{loaded.get(), bias, y};
    device.linear(x, {&projection, 1});
    std::vector<float> result(static_cast<std::size_t>(shape.rows * shape.outputs));
    download<float>(device, y, result);
    return result;
  }
  static DType type() { return std::get<0>(GetParam()); }
  static Activations activations() { return std::get<1>(GetParam()); }

  std::mt19937 random_{1};
};

INSTANTIATE_TEST_SUITE_P(Types, EmulatedQuads,
                         testing::Combine(testing::Values(DType::bf16, DType::f16),
                                          testing::Values(Activations::two_terms, Activations::bf16)),
                         name_of_quads);

TEST_P(EmulatedQuads, HaveTheBitsOfSingleWarps) {
  const auto quads = make_emulated_cuda_device({.activations = activations(), .quads_from_rows = 2}),
             warps = make_emulated_cuda_device({.activations = activations(), .quads_from_rows = 0});
  for (const QuadLinearShape& shape : kQuadShapes) {
    const std::vector<std::byte> weight = random_weight(shape);
    const std::vector<float> rows = random_numbers(shape.rows * shape.inputs), biases = random_numbers(shape.outputs);
    const std::vector<float> a = outputs(*quads, shape, weight, rows, biases),
                             b = outputs(*warps, shape, weight, rows, biases);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
        << shape.rows << " rows, " << shape.outputs << " outputs, " << shape.inputs << " inputs";
  }
}

// The work of a linear whose groups and rows take as long as memory brings them.
cuda::SharedWork quad_work(int groups, int row_blocks) {
  cuda::SharedWork work;
  work.groups = groups;
  work.row_blocks = row_blocks;
  work.strands = 4;
  work.most_width = 12;
  work.fetch_rows = 0.5;
  return work;
}

TEST(EvenShare, EveryGroupIsInOneProductAndWholeOnesGoRoundEvenly) {
  for (const int groups : {1, 3, 12, 13, 100, 256, 384, 1600})
    for (const int row_blocks : {1, 2, 5}) {
      const cuda::EvenShare share = cuda::share_evenly(quad_work(groups, row_blocks), 132);
      EXPECT_GE(share.width * (share.products / row_blocks), groups);
      EXPECT_LT(share.width * (share.products / row_blocks - 1), groups);
      EXPECT_EQ(share.products % row_blocks, 0);
      EXPECT_LE(share.whole, share.products);
      EXPECT_TRUE(share.whole == share.products || share.whole % 132 == 0) << share.whole;
    }
}

// Groups times strands that the busiest multiprocessor has, over what there are for each.
TEST(EvenShare, NobodyHasMuchMoreToDoThanOthers) {
  for (const int groups : {256, 384, 1600, 9472})
    for (const int row_blocks : {1, 4}) {
      const cuda::EvenShare share = cuda::share_evenly(quad_work(groups, row_blocks), 132);
      const int whole = (share.whole + 131) / 132 * 4, apart = ((share.products - share.whole) * 4 + 131) / 132;
      const double even = 4.0 * groups * row_blocks / 132;
      EXPECT_LT((whole + apart) * share.width, 1.12 * even) << groups << " groups, width " << share.width;
    }
}

}  // namespace
}  // namespace espalier
