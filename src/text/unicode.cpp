#include "text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/utf.h>

#include <cstdint>

#include "base/error.h"

namespace espalier {
namespace {

const icu::Normalizer2& nfc_data() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* data = icu::Normalizer2::getNFCInstance(status);  // owned by ICU
  if (U_FAILURE(status)) device_error("ICU: Normalizer2::getNFCInstance: {}", u_errorName(status));
  return *data;
}

}  // namespace

bool is_white_space(char32_t code_point) {
  return u_hasBinaryProperty(static_cast<UChar32>(code_point), UCHAR_WHITE_SPACE);
}

bool is_word_character(char32_t code_point) {
  const auto character = static_cast<UChar32>(code_point);
  constexpr std::uint32_t kCategories = U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return u_hasBinaryProperty(character, UCHAR_ALPHABETIC) || u_hasBinaryProperty(character, UCHAR_JOIN_CONTROL) ||
         (U_GET_GC_MASK(character) & kCategories) != 0;
}

bool starts_composition(char32_t code_point) {
  return nfc_data().hasBoundaryBefore(static_cast<UChar32>(code_point));
}

bool is_visible(char32_t code_point) {
  const auto character = static_cast<UChar32>(code_point);
  constexpr std::uint32_t kUnseen = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK;
  const bool ignorable = u_hasBinaryProperty(character, UCHAR_DEFAULT_IGNORABLE_CODE_POINT) &&
                         !u_hasBinaryProperty(character, UCHAR_VARIATION_SELECTOR);
  return (U_GET_GC_MASK(character) & kUnseen) == 0 && !U_IS_UNICODE_NONCHAR(character) && !ignorable;
}

int terminal_columns(char32_t code_point) {
  const auto character = static_cast<UChar32>(code_point);
  constexpr std::uint32_t kNoColumn = U_GC_MN_MASK | U_GC_ME_MASK | U_GC_CF_MASK;
  if ((U_GET_GC_MASK(character) & kNoColumn) != 0) return 0;
  if (u_hasBinaryProperty(character, UCHAR_DEFAULT_IGNORABLE_CODE_POINT)) return 0;
  const auto width = static_cast<UEastAsianWidth>(u_getIntPropertyValue(character, UCHAR_EAST_ASIAN_WIDTH));
  return width == U_EA_WIDE || width == U_EA_FULLWIDTH ? 2 : 1;
}

std::string nfc(std::string_view text) {
  std::string normalised;
  icu::StringByteSink<std::string> sink(&normalised);
  UErrorCode status = U_ZERO_ERROR;
  nfc_data().normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())), sink, nullptr,
                           status);
  if (U_FAILURE(status)) device_error("ICU: Normalizer2::normalizeUTF8: {}", u_errorName(status));
  return normalised;
}

}  // namespace espalier
