// UTF-8 as the tokenizers need it: well-formedness by the Unicode standard (no surrogates, no overlong forms, nothing
// above U+10FFFF), one character at a time, and the repair of bytes that never became a character.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What stands at the beginning of some bytes: a whole character, or the longest part of one that is no character
// ("maximal subpart" of the Unicode standard, section 3.9), or such a part that more bytes could still complete.
struct Utf8Step {
  enum class Kind { character, invalid, unfinished };
  Kind kind = Kind::invalid;
  std::size_t size = 0;     // bytes, at least 1
  char32_t code_point = 0;  // of a character
};

// Requires a non-empty text.
Utf8Step utf8_step(std::string_view text);

// Offset of the first byte that is not part of a whole character; nullopt when the text is valid.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

// Bytes of the character that starts with this byte. Requires valid text.
std::size_t utf8_length(char first_byte);

void append_utf8(std::string& text, char32_t code_point);

// Takes whole characters off the front of `pending` and returns them; each maximal invalid part becomes one U+FFFD. An
// unfinished tail stays in `pending`.
std::string take_characters(std::string& pending);

}  // namespace espalier
