#include "descriptors.h"

#include <algorithm>
#include <set>

namespace ascend_fake {
namespace {

constexpr size_t kMostRuns = 65536;

struct TypeFacts {
  aclDataType type;
  int bits;
  const char* name;
};
constexpr TypeFacts kTypes[] = {
    {ACL_FLOAT, 32, "f32"}, {ACL_FLOAT16, 16, "f16"}, {ACL_INT8, 8, "i8"},     {ACL_INT32, 32, "i32"},
    {ACL_UINT8, 8, "u8"},   {ACL_INT16, 16, "i16"},   {ACL_UINT16, 16, "u16"}, {ACL_UINT32, 32, "u32"},
    {ACL_INT64, 64, "i64"}, {ACL_UINT64, 64, "u64"},  {ACL_DOUBLE, 64, "f64"}, {ACL_BOOL, 8, "bool"},
    {ACL_BF16, 16, "bf16"}, {ACL_INT4, 4, "i4"},
};

const TypeFacts* facts_of(aclDataType type) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.type == type; });
  return found == std::end(kTypes) ? nullptr : found;
}

struct Dimension {
  int64_t count;
  int64_t stride;
};

// The dimensions that matter, smallest stride first, with those that continue each other made one.
std::vector<Dimension> simplified(const Operand& operand) {
  std::vector<Dimension> dimensions;
  for (size_t i = 0; i < operand.dims.size(); ++i) {
    if (operand.dims[i] > 1 && operand.strides[i] != 0) dimensions.push_back({operand.dims[i], operand.strides[i]});
  }
  std::sort(dimensions.begin(), dimensions.end(), [](const auto& a, const auto& b) { return a.stride < b.stride; });
  std::vector<Dimension> result;
  for (const Dimension& next : dimensions) {
    if (!result.empty() && next.stride == result.back().count * result.back().stride) {
      result.back().count *= next.count;
    } else {
      result.push_back(next);
    }
  }
  return result;
}

// The first element of every run of neighbours.
std::vector<int64_t> run_starts(const Operand& operand, const std::vector<Dimension>& outer) {
  std::vector<int64_t> starts{operand.offset};
  for (const Dimension& dimension : outer) {
    const size_t before = starts.size();
    for (int64_t i = 1; i < dimension.count; ++i) {
      for (size_t j = 0; j < before; ++j) starts.push_back(starts[j] + i * dimension.stride);
    }
  }
  return starts;
}

}  // namespace

int64_t product(const Shape& shape) {
  int64_t result = 1;
  for (const int64_t dim : shape) result *= dim;
  return result;
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string text_of(const Operand& operand) {
  return std::string(name_of(operand.type)) + " " + text_of(operand.dims);
}

int bits_of(aclDataType type) {
  const TypeFacts* facts = facts_of(type);
  return facts == nullptr ? 0 : facts->bits;
}

const char* name_of(aclDataType type) {
  const TypeFacts* facts = facts_of(type);
  return facts == nullptr ? "unknown" : facts->name;
}

bool is_float(aclDataType type) {
  return type == ACL_FLOAT || is_16_bit_float(type);
}

bool is_16_bit_float(aclDataType type) {
  return type == ACL_FLOAT16 || type == ACL_BF16;
}

bool is_index(aclDataType type) {
  return type == ACL_INT32 || type == ACL_INT64;
}

bool Operand::dense() const {
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] > 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

bool Operand::transposed() const {
  if (rank() < 2 || dense()) return dense();
  Operand swapped = *this;
  std::swap(swapped.dims[dims.size() - 1], swapped.dims[dims.size() - 2]);
  std::swap(swapped.strides[dims.size() - 1], swapped.strides[dims.size() - 2]);
  return swapped.dense();
}

bool Operand::same_view(const Operand& other) const {
  return address == other.address && type == other.type && dims == other.dims && strides == other.strides &&
         offset == other.offset;
}

Range Operand::range(int64_t first, int64_t count) const {
  const auto bits = static_cast<uint64_t>(bits_of(type));
  const auto begin = static_cast<uint64_t>(first);
  return {address + begin * bits / 8, address + ((begin + static_cast<uint64_t>(count)) * bits + 7) / 8};
}

int64_t Operand::last_element() const {
  int64_t last = offset;
  for (size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last;
}

Ranges Operand::bytes() const {
  if (format == ACL_FORMAT_FRACTAL_NZ) return {range(0, elements())};
  std::vector<Dimension> outer = simplified(*this);
  int64_t run = 1;
  if (!outer.empty() && outer.front().stride == 1) {
    run = outer.front().count;
    outer.erase(outer.begin());
  }
  size_t runs = 1;
  for (const Dimension& dimension : outer) runs *= static_cast<size_t>(dimension.count);
  if (runs > kMostRuns) return {range(offset, last_element() - offset + 1)};
  Ranges result;
  for (const int64_t start : run_starts(*this, outer)) result.push_back(range(start, run));
  return merged(std::move(result));
}

bool Operand::overlaps_itself() const {
  int64_t reach = 0;
  bool nested = true;
  for (const Dimension& dimension : simplified(*this)) {
    nested = nested && dimension.stride > reach;
    reach += (dimension.count - 1) * dimension.stride;
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1 && strides[i] == 0) return true;
  }
  if (nested) return false;
  const std::vector<int64_t> places = run_starts(*this, simplified(*this));
  return std::set<int64_t>(places.begin(), places.end()).size() < places.size();
}

}  // namespace ascend_fake
