// One safetensors file, read from its bytes. Safetensors (safetensors.h) maps the files and joins shards.
//
// Layout: u64 length of the header, little-endian; the header, a JSON object {"name": {"dtype": "F32", "shape": [2, 3],
// "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text", ...}}, padded with spaces; the data section, to
// which the offsets are relative and which the tensors fill without overlap or holes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "format/tensor_info.h"

namespace espalier {

// The tensors in name order; their bytes lie inside `bytes`. Throws InputError starting with `path`.
std::vector<TensorInfo> parse_safetensors(std::span<const std::byte> bytes, std::string_view path);

}  // namespace espalier
