// One GGUF v3 file, read from its bytes. Gguf (gguf.h) maps the files and joins split sets.
//
// Layout, little-endian: "GGUF", u32 version, u64 tensors, u64 keys; the metadata entries (string key, u32 type,
// value); the tensor entries (string name, u32 dimensions, u64 sizes innermost first, u32 type, u64 offset); padding to
// general.alignment (32 when absent); the data section, to which the offsets are relative. A string is a u64 length and
// its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/tensor_info.h"

namespace espalier {

struct GgufFile {
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // in file order; their bytes lie inside the bytes that were parsed
};

// Throws InputError starting with `path`. Memory used stays within a small multiple of bytes.size().
GgufFile parse_gguf(std::span<const std::byte> bytes, std::string_view path);

}  // namespace espalier
