// The attention mask of one tree as bytes: uint8 [1, 1, rows, columns], **1 hides the key**, 0 keeps it.
//
// Column j < N is committed position j, column N + i is row i of the tree, and columns from N + rows on are hidden from
// everybody. The column count is a multiple of 128. A valid row sees positions [begin, N), its ancestors and itself,
// with a window only the last so many of them; a padding row sees its own column alone, so no row is hidden completely
// (rules R19 to R23 of the Ascend contract).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tree/tree_tensors.h"

namespace espalier {

inline constexpr std::int32_t kMaskColumnStep = 128;

struct MaskOptions {
  std::int32_t begin = 0;    // the first committed position that any row sees
  std::int32_t window = 0;   // keys a row sees, itself included: positions above its own minus this; 0: all
  std::int32_t columns = 0;  // S, a multiple of 128 that holds N + rows; 0: the smallest
};

// The smallest S for a tree of `rows` rows behind `prefix` positions.
std::int64_t mask_columns(std::int32_t prefix, std::int32_t rows);

// Writes rows * columns bytes; `hidden` has exactly that size.
void write_dense_mask(const TreeTensors& tensors, const MaskOptions& options, std::span<std::uint8_t> hidden);
std::vector<std::uint8_t> dense_mask(const TreeTensors& tensors, const MaskOptions& options);

}  // namespace espalier
