// Views of device memory: an address, an element type and a shape, without operator[], so that host code cannot
// dereference them by accident. A view owns nothing. Dimension 0 may be strided (a column range of a wider matrix);
// everything inside one index of dimension 0 is dense.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>

#include "base/dtype.h"

namespace espalier {

// Whether the pointee may be written is part of the type: View converts to ConstView, never back.
template <typename Pointer>
class BasicView {
 public:
  static constexpr int kMaxRank = 4;

  BasicView() = default;
  BasicView(Pointer data, DType type, std::initializer_list<std::int64_t> shape);
  template <typename Other>
  requires std::is_convertible_v<Other, Pointer> &&
      (!std::is_same_v<Other, Pointer>)BasicView(const BasicView<Other>& other)
      : data_(other.data()), type_(other.type()), rank_(other.rank()), row_stride_(other.row_stride()) {
    for (int i = 0; i < rank_; ++i) shape_[static_cast<std::size_t>(i)] = other.dim(i);
  }

  Pointer data() const { return data_; }  // an address on the device, for the device's own code
  DType type() const { return type_; }
  int rank() const { return rank_; }
  std::int64_t dim(int i) const { return shape_[static_cast<std::size_t>(i)]; }
  std::int64_t row_stride() const { return row_stride_; }  // elements from one index of dimension 0 to the next
  std::int64_t row_elements() const;                       // elements inside one index of dimension 0
  std::int64_t elements() const { return dim(0) * row_elements(); }
  bool empty() const { return rank_ == 0; }
  bool dense() const { return dim(0) <= 1 || row_stride_ == row_elements(); }
  std::int64_t bytes_spanned() const;  // from the first byte to one past the last

  // Indices [begin, begin + count) of dimension 0.
  BasicView rows(std::int64_t begin, std::int64_t count) const;
  // Columns [begin, begin + count) of a rank-2 view; strided unless it takes them all.
  BasicView columns(std::int64_t begin, std::int64_t count) const;
  // The same elements under another shape. Needs a dense view, or a shape that keeps dimension 0.
  BasicView reshaped(std::initializer_list<std::int64_t> shape) const;

  std::string describe() const;  // "f32 [3, 64]", for messages

  // The same bytes under the same shape.
  bool operator==(const BasicView&) const = default;

 private:
  Pointer data_ = nullptr;
  DType type_ = DType::f32;
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> shape_{};
  std::int64_t row_stride_ = 0;
};

using View = BasicView<std::byte*>;
using ConstView = BasicView<const std::byte*>;

// Memory on a device; freed with the object. Created by Device::allocate.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() = 0;
  virtual std::size_t size() const = 0;
};

// A buffer and the view of all of it.
struct Tensor {
  std::unique_ptr<Buffer> buffer;
  View view;

  operator View() const { return view; }
  operator ConstView() const { return view; }
};

}  // namespace espalier

// A view inside a message is described only when the message is written.
template <typename Pointer>
struct fmt::formatter<espalier::BasicView<Pointer>> : fmt::formatter<std::string> {
  template <typename Context>
  auto format(const espalier::BasicView<Pointer>& view, Context& context) const {
    return fmt::formatter<std::string>::format(view.describe(), context);
  }
};
