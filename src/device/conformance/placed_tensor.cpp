#include "device/conformance/placed_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace espalier {
namespace {

constexpr std::int64_t kMargin = 64;
constexpr std::byte kFiller{0x5a};

}  // namespace

PlacedTensor::PlacedTensor(Device& device, DType type, std::int64_t rows, std::int64_t columns, Placement placement)
    : device_(&device) {
  const std::int64_t width = columns + placement.extra_columns;
  const std::int64_t bytes = rows * width * traits(type).block_bytes;
  all_ = device.tensor(DType::u8, {kMargin + placement.offset_bytes + bytes + kMargin});
  const std::vector<std::byte> filler(static_cast<std::size_t>(all_.view.elements()), kFiller);
  device.upload(filler, all_);
  const View wide(all_.view.data() + kMargin + placement.offset_bytes, type, {rows, width});
  view_ = wide.columns(0, columns);
}

void PlacedTensor::write(std::span<const std::byte> bytes) {
  ASSERT_EQ(static_cast<std::int64_t>(bytes.size()), view_.elements() * traits(view_.type()).block_bytes);
  const std::size_t row = bytes.size() / static_cast<std::size_t>(view_.dim(0));
  for (std::int64_t r = 0; r < view_.dim(0); ++r)
    device_->upload(bytes.subspan(static_cast<std::size_t>(r) * row, row), view_.rows(r, 1));
}

void PlacedTensor::read(std::span<std::byte> to) const {
  std::vector<std::byte> all(static_cast<std::size_t>(all_.view.elements()));
  device_->download(all_, all);
  const std::size_t row = to.size() / static_cast<std::size_t>(view_.dim(0));
  for (std::int64_t r = 0; r < view_.dim(0); ++r) {
    const auto begin = all.begin() + (view_.rows(r, 1).data() - all_.view.data());
    std::copy_n(begin, row, to.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * row));
    std::fill_n(begin, row, kFiller);
  }
  EXPECT_TRUE(std::ranges::all_of(all, [](std::byte b) { return b == kFiller; })) << "bytes outside the rows changed";
}

void expect_same_bits(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << "element " << i << ": got " << actual[i] << ", expected " << expected[i];
  }
}

void expect_same_bits(std::span<const std::int32_t> actual, std::span<const std::int32_t> expected) {
  ASSERT_TRUE(std::ranges::equal(actual, expected));
}

}  // namespace espalier
