// The conformance suite: every op of device.h on every device, compared with the reference device bit by bit, or, where
// a device adds in orders of its own, within bounds that follow from the lengths of the sums and the types of the
// numbers. A device joins by one line in devices_under_test().
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "device/conformance/bounds.h"
#include "device/conformance/placed_tensor.h"
#include "device/conformance/random_values.h"
#include "device/device.h"

namespace espalier {

struct DeviceUnderTest {
  std::string name;  // letters, digits and underscores
  std::function<std::unique_ptr<Device>()> make;
  bool any_alignment = true;  // operands may start on any multiple of their element size
  bool exact = true;          // it has the reference device's bits; else it is held to bounds (bounds.h)
  // Called when the device is gone: looks at what it left behind.
  std::function<void()> finish = {};
  bool round_ops = false;        // it has the ops of round_ops.h
  std::int64_t fewest_rows = 1;  // that attention takes
};
inline std::ostream& operator<<(std::ostream& out, const DeviceUnderTest& device) {
  return out << device.name;
}

// All of them, or the one that is judged alone (base/testing/judged_device.h).
std::vector<DeviceUnderTest> devices_under_test();
// Those that differ from one of these in linears of 16-bit floats alone (--activations).
std::vector<DeviceUnderTest> devices_with_one_term();
// Those that run layers of small models in one kernel, and give the same bits.
std::vector<DeviceUnderTest> devices_with_clusters();

struct NameOfDevice {
  std::string operator()(const testing::TestParamInfo<DeviceUnderTest>& info) const { return info.param.name; }
};

// An op over rows: computes the rows listed, taken from inputs it holds, with its operands placed as told where the
// contract leaves that open. Returns the outputs row by row.
using RowOp = std::function<std::vector<float>(Device&, const std::vector<std::int64_t>& rows, Placement)>;

// How far from the judge's the outputs of these rows may be, where a device is not exact; infinite: no matter how far.
using RowBounds = std::function<std::vector<double>(const std::vector<std::int64_t>& rows)>;

class DeviceTest {
 public:
  explicit DeviceTest(const DeviceUnderTest& description);
  ~DeviceTest();
  DeviceTest(const DeviceTest&) = delete;
  DeviceTest& operator=(const DeviceTest&) = delete;

  Device& tested() { return *tested_; }
  Device& judge() { return *judge_; }

  bool exact() const { return description_.exact; }
  bool has_buckets() const { return !tested_->row_buckets().empty(); }
  // Row counts to try: 1, odd, prime, larger than a tile; or the device's buckets.
  std::vector<std::int64_t> row_counts() const;
  // One that the device accepts, at least n if there is one.
  std::int64_t row_count(std::int64_t n) const;
  // This row of so many and others behind it: as few as attention takes.
  std::vector<std::int64_t> least_company(std::int64_t row, std::int64_t rows) const;
  std::int64_t fewest_rows() const { return description_.fewest_rows; }
  // Other places for operands than dense and on 64 bytes.
  std::vector<Placement> placements(bool may_be_strided) const;

  // The judge's bits for all rows, wherever the operands lie (one of the placements in turn), and the same bits for
  // rows computed alone. bounds: for devices that are not exact; none: the op moves or
  // compares numbers, so they are
  void expect_conforming(const RowOp& op, std::int64_t rows, bool may_be_strided, const RowBounds& bounds = {});
  // Within bounds of the judge, and a row's own bits wherever it lies, alone and among others: for ops that a device
  // computes in an order of its own, but row by row.
  void expect_own_order(const RowOp& op, std::int64_t rows, bool may_be_strided, const RowBounds& bounds);
  // The judge's bits, or as close as a device that is not exact has to be.
  void expect_close(std::span<const float> actual, std::span<const float> expected,
                    std::span<const double> bounds) const;

 private:
  DeviceUnderTest description_;
  std::unique_ptr<Device> tested_;
  std::unique_ptr<Device> judge_;
  std::size_t calls_ = 0;
};

// Rows `rows` of a matrix given row by row.
template <typename T>
std::vector<T> select_rows(const std::vector<T>& matrix, const std::vector<std::int64_t>& rows, std::int64_t width) {
  std::vector<T> selected;
  for (std::int64_t r : rows)
    selected.insert(selected.end(), matrix.begin() + r * width, matrix.begin() + (r + 1) * width);
  return selected;
}

inline constexpr std::int64_t kWidths[] = {1, 5, 16, 31, 64, 97, 256, 257};

}  // namespace espalier
