// Text as a zstd frame of its own and back: the unit in which a trace grows. A frame carries its size and a checksum.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

inline constexpr std::size_t kMostFrameBytes = std::size_t{1} << 28;  // of text

// Requires at most kMostFrameBytes.
std::string compress_frame(std::string_view text);

// The bytes of the frame at the front of `bytes`; nothing where they end inside of it. Throws InputError "where: ..."
// where no frame begins.
std::optional<std::size_t> frame_size(std::span<const std::byte> bytes, std::string_view where);
// The text of a whole frame. Throws InputError "where: ..." where it is damaged or says it is larger than
// kMostFrameBytes.
std::string decompress_frame(std::span<const std::byte> frame, std::string_view where);

}  // namespace espalier
