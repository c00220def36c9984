#include "tree/dense_mask.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"

namespace espalier {
namespace {

std::size_t columns_of(const TreeTensors& tensors, const MaskOptions& options) {
  const std::int64_t smallest = mask_columns(tensors.prefix, tensors.rows);
  const std::int64_t columns = options.columns == 0 ? smallest : options.columns;
  check(columns >= smallest && columns % kMaskColumnStep == 0,
        "dense mask: {} columns, expected a multiple of {} from {} on", columns, kMaskColumnStep, smallest);
  check(options.begin >= 0 && options.begin <= tensors.prefix, "dense mask: begin {}, expected 0 to {}", options.begin,
        tensors.prefix);
  return static_cast<std::size_t>(columns);
}

}  // namespace

std::int64_t mask_columns(std::int32_t prefix, std::int32_t rows) {
  const std::int64_t used = std::int64_t{prefix} + rows;
  return (used + kMaskColumnStep - 1) / kMaskColumnStep * kMaskColumnStep;
}

void write_dense_mask(const TreeTensors& tensors, const MaskOptions& options, std::span<std::uint8_t> hidden) {
  const std::size_t columns = columns_of(tensors, options);
  check(hidden.size() == columns * static_cast<std::size_t>(tensors.rows), "dense mask: {} bytes for {} x {}",
        hidden.size(), tensors.rows, columns);
  std::fill(hidden.begin(), hidden.end(), std::uint8_t{1});
  for (std::int32_t row = 0; row < tensors.rows; ++row) {
    std::uint8_t* const positions = hidden.data() + static_cast<std::size_t>(row) * columns;
    std::uint8_t* const tree = positions + tensors.prefix;
    if (tensors.valid[static_cast<std::size_t>(row)]) std::fill(positions + options.begin, tree, std::uint8_t{0});
    for (std::int32_t above : tensors.ancestors(row)) tree[above] = 0;
    tree[row] = 0;
  }
}

std::vector<std::uint8_t> dense_mask(const TreeTensors& tensors, const MaskOptions& options) {
  std::vector<std::uint8_t> hidden(columns_of(tensors, options) * static_cast<std::size_t>(tensors.rows));
  write_dense_mask(tensors, options, hidden);
  return hidden;
}

}  // namespace espalier
