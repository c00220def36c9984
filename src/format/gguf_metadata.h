// The metadata section of a GGUF file.
#pragma once

#include <cstdint>
#include <string_view>

#include "format/gguf.h"
#include "format/gguf_cursor.h"

namespace espalier {

inline constexpr int kMaxGgufArrayDepth = 4;          // arrays in arrays in arrays in arrays
inline constexpr std::uint64_t kMaxGgufKeys = 65536;  // models have a few dozen
inline constexpr std::uint64_t kMaxGgufNameBytes = 65535;

// `count` entries from the cursor on.
GgufMetadata read_gguf_metadata(GgufCursor& cursor, std::uint64_t count);

// A key or tensor name: 1 to kMaxGgufNameBytes bytes of UTF-8.
std::string_view read_gguf_name(GgufCursor& cursor);

// `integer`, `array of strings`, ...: for messages.
std::string_view kind_name(const GgufValue& value);

}  // namespace espalier
