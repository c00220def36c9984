// A text in which every byte carries marks: where it came from decides what may be made of it. Normalisers change the
// text and carry the marks along.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "text/text_piece.h"

namespace espalier {

struct MarkedText {
  static constexpr char kAllowSpecial = 1;  // may be part of a control token
  static constexpr char kLiteral = 2;       // part of a character that must be spelled byte by byte

  std::string text;
  std::string marks;  // one byte of marks for each byte of text

  void append(std::string_view added, char mark) {
    text += added;
    marks.append(added.size(), mark);
  }
  void append(const MarkedText& source, std::size_t begin, std::size_t end) {
    text.append(source.text, begin, end - begin);
    marks.append(source.marks, begin, end - begin);
  }
  MarkedText slice(std::size_t begin, std::size_t end) const {
    return {text.substr(begin, end - begin), marks.substr(begin, end - begin)};
  }
};

// The pieces as one text. Throws InputError with the offset when it is not valid UTF-8, or longer than 2^31 - 1 bytes.
MarkedText join_pieces(std::span<const TextPiece> pieces);

}  // namespace espalier
