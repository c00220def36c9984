#include "text/jinja/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringoptions.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3a3;
constexpr const char* kFinalSigma = "\xcf\x82";
constexpr const char* kRootLocale = "";

bool has(char32_t code, UProperty property) {
  return u_hasBinaryProperty(static_cast<UChar32>(code), property);
}

// convert(text, sink, status): one of ICU's mappings.
template <typename Convert>
std::string map_case(char32_t code, Convert convert) {
  std::string text, mapped;
  append_utf8(text, code);
  icu::StringByteSink<std::string> sink(&mapped);
  UErrorCode status = U_ZERO_ERROR;
  convert(icu::StringPiece(text), sink, status);
  if (U_FAILURE(status)) device_error("ICU: CaseMap: {}", u_errorName(status));
  return mapped;
}

// Unicode's Final_Sigma: a cased character before it and none after it, case-ignorable ones not counted.
bool is_final_sigma(std::string_view text, std::size_t offset) {
  std::size_t before = offset;
  bool cased_before = false;
  while (before > 0) {
    const Character character = character_before(text, before);
    if (!has(character.code, UCHAR_CASE_IGNORABLE)) {
      cased_before = is_cased(character.code);
      break;
    }
    before -= character.bytes;
  }
  if (!cased_before) return false;
  std::size_t after = offset + character_at(text, offset).bytes;
  while (after < text.size()) {
    const Character character = character_at(text, after);
    if (!has(character.code, UCHAR_CASE_IGNORABLE)) return !is_cased(character.code);
    after += character.bytes;
  }
  return true;
}

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

Character character_at(std::string_view text, std::size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  const std::size_t length = utf8_length(text[offset]);
  if (length == 1) return {.code = lead, .bytes = 1};
  char32_t code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = (code << 6) | (static_cast<unsigned char>(text[offset + i]) & 0x3fu);
  return {.code = code, .bytes = length};
}

Character character_before(std::string_view text, std::size_t offset) {
  std::size_t start = offset - 1;
  while (start > 0 && is_continuation(text[start])) --start;
  return character_at(text, start);
}

std::size_t count_characters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), is_continuation));
}

bool is_space(char32_t code) {
  const auto character = static_cast<UChar32>(code);
  const UCharDirection direction = u_charDirection(character);
  return direction == U_WHITE_SPACE_NEUTRAL || direction == U_BLOCK_SEPARATOR || direction == U_SEGMENT_SEPARATOR ||
         u_charType(character) == U_SPACE_SEPARATOR;
}
bool is_printable(char32_t code) {
  return code == U' ' || (U_GET_GC_MASK(static_cast<UChar32>(code)) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}
bool is_decimal(char32_t code) {
  return u_charType(static_cast<UChar32>(code)) == U_DECIMAL_DIGIT_NUMBER;
}
bool is_cased(char32_t code) {
  return has(code, UCHAR_CASED);
}

std::string upper(char32_t code) {
  return map_case(code, [](icu::StringPiece text, icu::ByteSink& sink, UErrorCode& status) {
    icu::CaseMap::utf8ToUpper(kRootLocale, 0, text, sink, nullptr, status);
  });
}
std::string title(char32_t code) {
  constexpr std::uint32_t kOptions = U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT;
  return map_case(code, [](icu::StringPiece text, icu::ByteSink& sink, UErrorCode& status) {
    icu::CaseMap::utf8ToTitle(kRootLocale, kOptions, nullptr, text, sink, nullptr, status);
  });
}

std::string lower(std::string_view text, std::size_t offset) {
  const char32_t code = character_at(text, offset).code;
  if (code == kCapitalSigma && is_final_sigma(text, offset)) return kFinalSigma;
  return map_case(code, [](icu::StringPiece piece, icu::ByteSink& sink, UErrorCode& status) {
    icu::CaseMap::utf8ToLower(kRootLocale, 0, piece, sink, nullptr, status);
  });
}

}  // namespace espalier::jinja
