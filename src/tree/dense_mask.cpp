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
  check(options.window >= 0, "dense mask: window {}, expected at least 0", options.window);
  return static_cast<std::size_t>(columns);
}

// The first position inside the window of a row.
std::int32_t window_begin(const TreeTensors& tensors, std::int32_t window, std::int32_t row) {
  if (window == 0) return 0;
  return std::max(0, tensors.position[static_cast<std::size_t>(row)] - window + 1);
}

// What a valid row sees besides itself. `positions`: its columns, the committed ones first.
void show_context(const TreeTensors& tensors, const MaskOptions& options, std::int32_t row, std::uint8_t* positions) {
  const std::int32_t first = window_begin(tensors, options.window, row);
  std::fill(positions + std::min(std::max(first, options.begin), tensors.prefix), positions + tensors.prefix,
            std::uint8_t{0});
  for (std::int32_t above : tensors.ancestors(row))
    if (tensors.position[static_cast<std::size_t>(above)] >= first) positions[tensors.prefix + above] = 0;
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
    if (tensors.valid[static_cast<std::size_t>(row)]) show_context(tensors, options, row, positions);
    positions[tensors.prefix + row] = 0;
  }
}

std::vector<std::uint8_t> dense_mask(const TreeTensors& tensors, const MaskOptions& options) {
  std::vector<std::uint8_t> hidden(columns_of(tensors, options) * static_cast<std::size_t>(tensors.rows));
  write_dense_mask(tensors, options, hidden);
  return hidden;
}

}  // namespace espalier
