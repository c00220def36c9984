#include "device/view.h"

#include <fmt/ranges.h>

#include <span>

#include "base/error.h"

namespace espalier {

template <typename Pointer>
BasicView<Pointer>::BasicView(Pointer data, DType type, std::initializer_list<std::int64_t> shape)
    : data_(data), type_(type), rank_(static_cast<int>(shape.size())) {
  check(rank_ >= 1 && rank_ <= kMaxRank, "view of rank {}: expected 1 to {}", rank_, kMaxRank);
  check(traits(type).block_elements == 1, "view of {}: block formats live in weights only", name(type));
  std::size_t i = 0;
  for (std::int64_t extent : shape) {
    check(extent >= 0, "view with a dimension of {}", extent);
    shape_[i++] = extent;
  }
  row_stride_ = row_elements();
}

template <typename Pointer>
std::int64_t BasicView<Pointer>::row_elements() const {
  std::int64_t product = 1;
  for (int i = 1; i < rank_; ++i) product *= dim(i);
  return product;
}

template <typename Pointer>
std::int64_t BasicView<Pointer>::bytes_spanned() const {
  if (rank_ == 0 || elements() == 0) return 0;
  return ((dim(0) - 1) * row_stride_ + row_elements()) * traits(type_).block_bytes;
}

template <typename Pointer>
BasicView<Pointer> BasicView<Pointer>::rows(std::int64_t begin, std::int64_t count) const {
  check(rank_ >= 1 && begin >= 0 && count >= 0 && begin + count <= dim(0), "rows [{}, {}) of {}", begin, begin + count,
        *this);
  BasicView part = *this;
  part.data_ = data_ + begin * row_stride_ * traits(type_).block_bytes;
  part.shape_[0] = count;
  return part;
}

template <typename Pointer>
BasicView<Pointer> BasicView<Pointer>::columns(std::int64_t begin, std::int64_t count) const {
  check(rank_ == 2 && begin >= 0 && count >= 0 && begin + count <= dim(1), "columns [{}, {}) of {}", begin,
        begin + count, *this);
  BasicView part = *this;
  part.data_ = data_ + begin * traits(type_).block_bytes;
  part.shape_[1] = count;
  return part;
}

template <typename Pointer>
BasicView<Pointer> BasicView<Pointer>::reshaped(std::initializer_list<std::int64_t> shape) const {
  BasicView other(data_, type_, shape);
  check(other.elements() == elements(), "{} reshaped to {}", *this, other);
  if (other.dim(0) == dim(0)) {
    other.row_stride_ = row_stride_;
  } else {
    check(dense(), "{} is strided and cannot be reshaped to {}", *this, other);
  }
  return other;
}

template <typename Pointer>
std::string BasicView<Pointer>::describe() const {
  std::string text =
      fmt::format("{} [{}]", name(type_), fmt::join(std::span(shape_.data(), static_cast<std::size_t>(rank_)), ", "));
  if (!dense()) text += fmt::format(" row stride {}", row_stride_);
  return text;
}

template class BasicView<std::byte*>;
template class BasicView<const std::byte*>;

}  // namespace espalier
