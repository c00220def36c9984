#include "format/tensor_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr auto kMaximum = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// a * b, or nothing above kMaximum.
bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& product) {
  if (b != 0 && a > kMaximum / b) return false;
  product = a * b;
  return true;
}

}  // namespace

std::int64_t checked_tensor_bytes(std::string_view where, DType type, std::span<const std::uint64_t> dimensions) {
  const DTypeTraits& format = traits(type);
  std::uint64_t blocks = 1;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    std::uint64_t size = dimensions[i];
    if (size == 0) input_error("{}: shape [{}]: expected dimensions of at least 1", where, fmt::join(dimensions, ", "));
    if (i + 1 == dimensions.size()) {
      if (size % static_cast<std::uint64_t>(format.block_elements) != 0)
        input_error("{}: expected rows of a multiple of {} elements for {}, got {}", where, format.block_elements,
                    format.name, size);
      size /= static_cast<std::uint64_t>(format.block_elements);
    }
    if (!multiply(blocks, size, blocks))
      input_error("{}: shape [{}] overflows 63 bits", where, fmt::join(dimensions, ", "));
  }
  std::uint64_t bytes = 0;
  std::uint64_t elements = 0;
  if (!multiply(blocks, static_cast<std::uint64_t>(format.block_bytes), bytes) ||
      !multiply(blocks, static_cast<std::uint64_t>(format.block_elements), elements))
    input_error("{}: shape [{}] of {} overflows 63 bits", where, fmt::join(dimensions, ", "), format.name);
  return static_cast<std::int64_t>(bytes);
}

void sort_by_name(std::string_view where, std::vector<TensorInfo>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twin != tensors.end()) input_error("{}: duplicate tensor {}", where, in_quotes(twin->name));
}

const TensorInfo* find_by_name(std::span<const TensorInfo> tensors, std::string_view name) {
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                      [](const TensorInfo& tensor, std::string_view key) { return tensor.name < key; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

}  // namespace espalier
