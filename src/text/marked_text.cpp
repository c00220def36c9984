#include "text/marked_text.h"

#include <cstdint>
#include <limits>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier {

MarkedText join_pieces(std::span<const TextPiece> pieces) {
  std::size_t size = 0;
  for (const TextPiece& piece : pieces) size += piece.text.size();
  constexpr std::size_t kLongest = std::numeric_limits<std::int32_t>::max();
  if (size > kLongest) input_error("text: expected at most {} bytes, got {}", kLongest, size);

  MarkedText joined;
  joined.text.reserve(size);
  joined.marks.reserve(size);
  for (const TextPiece& piece : pieces) {
    joined.append(piece.text, piece.allow_special ? MarkedText::kAllowSpecial : char{0});
  }
  if (const auto offset = first_invalid_utf8(joined.text)) {
    input_error("text: not valid UTF-8 at byte {} ({:#04x})", *offset,
                static_cast<unsigned char>(joined.text[*offset]));
  }
  return joined;
}

}  // namespace espalier
