// Linears on cards with much and with little shared memory: other kernels, the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "device/cuda/emulated/emulated_cuda_device.h"

namespace espalier {
namespace {

struct Shape {
  std::int64_t rows, outputs, inputs;
};

// Fewer and more outputs than a group has and than make enough groups; few chunks and so many that rings go round.
constexpr Shape kShapes[] = {{1, 5, 256},    {1, 70, 512 * 3}, {1, 300, 768}, {1, 40, 4608},
                             {2, 40, 2560},  {8, 300, 512},    {9, 40, 1280}, {11, 150, 1280},
                             {16, 280, 512}, {21, 40, 1024},   {64, 70, 512}, {75, 24, 256}};

class EmulatedBlocks : public ::testing::TestWithParam<DType> {
 protected:
  std::vector<std::byte> random_weight(const Shape& shape) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(shape.outputs * row_bytes(GetParam(), shape.inputs)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_() % 64);  // no scale is infinite
    return bytes;
  }
  std::vector<float> random_rows(const Shape& shape) {
    std::vector<float> x(static_cast<std::size_t>(shape.rows * shape.inputs));
    for (float& value : x) value = std::uniform_real_distribution<float>(-1, 1)(random_);
    return x;
  }
  std::vector<float> outputs(Device& device, const Shape& shape, std::span<const std::byte> weight,
                             std::span<const float> rows) {
    const WeightPart part{GetParam(), shape.outputs, shape.inputs, weight};
    const auto loaded = device.load_weight({&part, 1});
    const Tensor x = device.tensor(DType::f32, {shape.rows, shape.inputs}),
                 y = device.tensor(DType::f32, {shape.rows, shape.outputs});
    upload<float>(device, rows, x);
    const Projection projection{loaded.get(), {}, y};
    device.linear(x, {&projection, 1});
    std::vector<float> result(static_cast<std::size_t>(shape.rows * shape.outputs));
    download<float>(device, y, result);
    return result;
  }

  std::mt19937 random_{1};
};

TEST_P(EmulatedBlocks, LinearsHaveTheSameBitsWithLittleSharedMemory) {
  const auto large = make_emulated_cuda_device(), small = make_emulated_cuda_device({.small_blocks = true});
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  if (traits(GetParam()).block_elements != 256)  // chunks that are not full
    shapes.insert(shapes.end(),
                  {{1, 40, 288}, {1, 300, 1120}, {3, 40, 288}, {11, 40, 1120}, {20, 24, 96}, {40, 24, 288}});
  if (traits(GetParam()).block_elements == 1) shapes.insert(shapes.end(), {{1, 40, 641}, {70, 300, 641}, {150, 20, 5}});
  for (const Shape& shape : shapes) {
    const std::vector<std::byte> weight = random_weight(shape);
    const std::vector<float> rows = random_rows(shape);
    const std::vector<float> a = outputs(*large, shape, weight, rows), b = outputs(*small, shape, weight, rows);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
        << shape.rows << " rows, " << shape.outputs << " outputs, " << shape.inputs << " inputs";
  }
}

TEST_P(EmulatedBlocks, ALinearBehindALinearOverTheSameRowsInAStepHasItsOwnBits) {
  const auto device = make_emulated_cuda_device();
  const Shape shape{3, 40, 512};
  const std::vector<std::byte> first = random_weight(shape), second = random_weight(shape);
  const std::vector<float> rows = random_rows(shape);
  const WeightPart parts[2] = {{GetParam(), shape.outputs, shape.inputs, first},
                               {GetParam(), shape.outputs, shape.inputs, second}};
  const std::unique_ptr<const Weight> weights[2] = {device->load_weight({&parts[0], 1}),
                                                    device->load_weight({&parts[1], 1})};
  const Tensor x = device->tensor(DType::f32, {shape.rows, shape.inputs}),
               ys[2] = {device->tensor(DType::f32, {shape.rows, shape.outputs}),
                        device->tensor(DType::f32, {shape.rows, shape.outputs})};
  upload<float>(*device, rows, x);
  const auto recordings = device->make_recordings();
  device->step(*recordings, {}, [&] {
    for (int i = 0; i < 2; ++i) {
      const Projection projection{weights[i].get(), {}, ys[i]};
      device->linear(x, {&projection, 1});
    }
  });
  for (int i = 0; i < 2; ++i) {
    std::vector<float> got(static_cast<std::size_t>(shape.rows * shape.outputs));
    download<float>(*device, ys[i], got);
    EXPECT_EQ(got, outputs(*device, shape, i == 0 ? first : second, rows)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EmulatedBlocks,
                         ::testing::Values(DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k,
                                           DType::q5_k, DType::q6_k, DType::bf16, DType::f16),
                         [](const auto& parameter) { return std::string(name(parameter.param)); });

}  // namespace
}  // namespace espalier
