#include "base/untrusted_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace espalier {
namespace {

constexpr std::size_t kQuotedBytes = 96;

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Bytes of the well-formed character at the start of `text`, 0 if there is none (Unicode 15, table 3-7).
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!is_continuation(byte(i))) return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) > 0x9F;
  const bool beyond_unicode = lead == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || beyond_unicode ? 0 : length;
}

bool is_control(unsigned char byte) {
  return byte < 0x20 || byte == 0x7F;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    if (result.size() > kQuotedBytes) {
      result += "...";
      break;
    }
    const auto lead = static_cast<unsigned char>(text.front());
    const std::size_t length = is_control(lead) ? 0 : character_bytes(text);
    if (length == 0)
      fmt::format_to(std::back_inserter(result), "\\x{:02x}", lead);
    else
      result += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + "\"";
}

}  // namespace espalier
