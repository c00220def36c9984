#include "text/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

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
