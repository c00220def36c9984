// SentencePiece writes a space as ▁ (U+2581) inside its pieces.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

inline constexpr std::string_view kSpaceMarker = "\xE2\x96\x81";

// The text a piece stands for: every ▁ is a space.
inline std::string spaces_for_markers(std::string_view piece) {
  std::string text;
  for (std::size_t at = piece.find(kSpaceMarker); at != std::string_view::npos; at = piece.find(kSpaceMarker)) {
    text.append(piece.substr(0, at)).push_back(' ');
    piece.remove_prefix(at + kSpaceMarker.size());
  }
  return text.append(piece);
}

}  // namespace espalier
