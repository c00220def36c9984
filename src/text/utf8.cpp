#include "text/utf8.h"

#include <cstdint>

#include "base/error.h"

namespace espalier {
namespace {

// The legal second bytes and the length of a sequence, by its first byte (Unicode standard, table 3-7).
struct Lead {
  std::size_t length;
  unsigned char second_low;
  unsigned char second_high;
};

std::optional<Lead> lead_of(unsigned char byte) {
  if (byte < 0x80) return Lead{1, 0, 0};
  if (byte < 0xC2) return std::nullopt;
  if (byte < 0xE0) return Lead{2, 0x80, 0xBF};
  if (byte == 0xE0) return Lead{3, 0xA0, 0xBF};
  if (byte == 0xED) return Lead{3, 0x80, 0x9F};
  if (byte < 0xF0) return Lead{3, 0x80, 0xBF};
  if (byte == 0xF0) return Lead{4, 0x90, 0xBF};
  if (byte < 0xF4) return Lead{4, 0x80, 0xBF};
  if (byte == 0xF4) return Lead{4, 0x80, 0x8F};
  return std::nullopt;
}

char32_t code_point_of(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]);
  char32_t code_point = static_cast<unsigned char>(character[0]) & (0x7Fu >> character.size());
  for (const char c : character.substr(1)) code_point = code_point << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code_point;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  check(!text.empty(), "utf8_step: the text is empty");
  const std::optional<Lead> lead = lead_of(static_cast<unsigned char>(text[0]));
  if (!lead) return {Utf8Step::Kind::invalid, 1, 0};
  for (std::size_t i = 1; i < lead->length; ++i) {
    if (i == text.size()) return {Utf8Step::Kind::unfinished, i, 0};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead->second_low : 0x80;
    const unsigned char high = i == 1 ? lead->second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Step::Kind::invalid, i, 0};
  }
  return {Utf8Step::Kind::character, lead->length, code_point_of(text.substr(0, lead->length))};
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t offset = 0;
  while (offset < text.size()) {
    if (static_cast<unsigned char>(text[offset]) < 0x80) {
      ++offset;
      continue;
    }
    const Utf8Step step = utf8_step(text.substr(offset));
    if (step.kind != Utf8Step::Kind::character) return offset;
    offset += step.size;
  }
  return std::nullopt;
}

std::size_t utf8_length(char first_byte) {
  const std::optional<Lead> lead = lead_of(static_cast<unsigned char>(first_byte));
  check(lead.has_value(), "utf8_length: byte {:#04x} starts no character", static_cast<unsigned char>(first_byte));
  return lead->length;
}

void append_utf8(std::string& text, char32_t code_point) {
  check(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF), "append_utf8: {:#x} is no character",
        static_cast<std::uint32_t>(code_point));
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string take_characters(std::string& pending) {
  std::string text;
  std::size_t offset = 0;
  while (offset < pending.size()) {
    const std::string_view rest = std::string_view(pending).substr(offset);
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::unfinished) break;
    text += step.kind == Utf8Step::Kind::character ? rest.substr(0, step.size) : kReplacementCharacter;
    offset += step.size;
  }
  pending.erase(0, offset);
  return text;
}

}  // namespace espalier
