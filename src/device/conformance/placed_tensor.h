// A matrix somewhere inside a larger buffer, for tests: at an odd offset, with gaps between its rows, and with bytes
// around and between the rows that must not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace espalier {

struct Placement {
  std::int64_t offset_bytes = 0;   // from a 64-byte boundary
  std::int64_t extra_columns = 0;  // > 0: strided
};

class PlacedTensor {
 public:
  PlacedTensor(Device& device, DType type, std::int64_t rows, std::int64_t columns, Placement placement = {});

  View view() const { return view_; }
  operator View() const { return view_; }
  operator ConstView() const { return view_; }

  template <typename T>
  void fill(const std::vector<T>& values) {
    write(std::as_bytes(std::span(values)));
  }
  // Row by row. Fails the running test if a byte outside the rows has changed.
  template <typename T>
  std::vector<T> values() const {
    std::vector<T> result(static_cast<std::size_t>(view_.elements()));
    read(std::as_writable_bytes(std::span(result)));
    return result;
  }

 private:
  void write(std::span<const std::byte> bytes);
  void read(std::span<std::byte> to) const;

  Device* device_;
  Tensor all_;
  View view_;
};

template <typename T>
PlacedTensor place(Device& device, DType type, const std::vector<T>& values, std::int64_t rows,
                   Placement placement = {}) {
  PlacedTensor tensor(device, type, rows, static_cast<std::int64_t>(values.size()) / rows, placement);
  tensor.fill(values);
  return tensor;
}

// Bit patterns are equal, or both are NaN; -0 differs from +0. Fails the running test at the first difference.
void expect_same_bits(std::span<const float> actual, std::span<const float> expected);
void expect_same_bits(std::span<const std::int32_t> actual, std::span<const std::int32_t> expected);

}  // namespace espalier
