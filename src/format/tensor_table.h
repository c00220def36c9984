// What both readers do with the tensors of a file: the bytes a shape needs, and a table sorted by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "format/tensor_info.h"

namespace espalier {

// The bytes of a tensor with these dimensions (outermost first, none for a scalar), as a file claims them. Throws
// InputError starting with `where` when a dimension is 0, when elements or bytes exceed int64, or when the innermost
// dimension is not a whole number of blocks.
std::int64_t checked_tensor_bytes(std::string_view where, DType type, std::span<const std::uint64_t> dimensions);

// Throws InputError starting with `where` when two tensors have the same name.
void sort_by_name(std::string_view where, std::vector<TensorInfo>& tensors);

// Binary search; nullptr when absent. Requires tensors as left by sort_by_name.
const TensorInfo* find_by_name(std::span<const TensorInfo> tensors, std::string_view name);

}  // namespace espalier
