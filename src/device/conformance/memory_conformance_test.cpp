// Host memory to a device and back, on every device: in one piece, in several, and lent.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "device/conformance/conformance.h"

namespace espalier {
namespace {

class MemoryConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  // Rows of five numbers each.
  Tensor numbered(std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(rows * 5));
    std::iota(values.begin(), values.end(), 0.0f);
    Tensor tensor = device().tensor(DType::f32, {rows, 5});
    upload<float>(device(), values, tensor);
    return tensor;
  }
  Device& device() { return test_.tested(); }

  DeviceTest test_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Devices, MemoryConformance, testing::ValuesIn(devices_under_test()), NameOfDevice());

TEST_P(MemoryConformance, PartsOfOneDownloadGoEachToItsPlace) {
  const Tensor x = numbered(7), y = numbered(1);
  const std::vector<std::int32_t> ids = {9, -3};
  const Tensor z = device().tensor(DType::i32, {2});
  upload<std::int32_t>(device(), ids, z);
  std::vector<float> rows(10), again(5), first(5);
  std::vector<std::int32_t> read(2);
  const Download parts[] = {part_of_download(x.view.rows(4, 2), std::span(rows)), part_of_download(z, std::span(read)),
                            part_of_download(x.view.rows(5, 1), std::span(again)),
                            part_of_download(y, std::span(first))};
  device().download(parts);
  EXPECT_EQ(rows, (std::vector<float>{20, 21, 22, 23, 24, 25, 26, 27, 28, 29}));
  EXPECT_EQ(read, ids);
  EXPECT_EQ(again, (std::vector<float>{25, 26, 27, 28, 29}));
  EXPECT_EQ(first, (std::vector<float>{0, 1, 2, 3, 4}));
}

TEST_P(MemoryConformance, ADownloadSeesTheOpsBeforeIt) {
  const Tensor x = numbered(8), y = numbered(8);
  device().add(x, y);
  std::vector<float> of_x(40), of_y(40);
  const Download parts[] = {part_of_download(x, std::span(of_x)), part_of_download(y, std::span(of_y))};
  device().download(parts);
  for (std::size_t i = 0; i < of_x.size(); ++i) EXPECT_EQ(of_x[i], 2 * of_y[i]);
}

TEST_P(MemoryConformance, WhatIsLentHoldsTheBytesOfADownload) {
  const Tensor x = numbered(8), y = numbered(8);
  device().add(x, y);
  const std::span<const std::byte> lent = device().lend(x.view.rows(2, 3));
  if (lent.empty()) return;  // memory of its own
  std::vector<std::byte> copied(3 * 5 * sizeof(float));
  device().download(x.view.rows(2, 3), copied);
  EXPECT_TRUE(std::ranges::equal(lent, copied));
}

}  // namespace
}  // namespace espalier
