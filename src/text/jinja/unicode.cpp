#include "text/jinja/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "text/utf8.h"

namespace espalier::jinja {
namespace {

struct Range {
  char32_t first, last;
};

// Every `stride`-th character of [first, last] maps to itself plus delta.
struct CaseRun {
  char32_t first, last;
  std::uint32_t stride;
  std::int32_t delta;
};

struct Expansion {
  char32_t code;
  const char* text;
};

#include "text/jinja/unicode_tables.inc"

constexpr char32_t kCapitalSigma = 0x3a3;
constexpr const char* kFinalSigma = "\xcf\x82";

template <typename Entry>
const Entry* find_range(std::span<const Entry> table, char32_t code) {
  const auto after = std::upper_bound(table.begin(), table.end(), code,
                                      [](char32_t value, const Entry& entry) { return value < entry.first; });
  if (after == table.begin()) return nullptr;
  const Entry& entry = *std::prev(after);
  return code <= entry.last ? &entry : nullptr;
}

bool contains(std::span<const Range> table, char32_t code) {
  return find_range(table, code) != nullptr;
}

std::string map_case(std::span<const CaseRun> runs, std::span<const Expansion> expansions, char32_t code) {
  const auto expansion = std::lower_bound(expansions.begin(), expansions.end(), code,
                                          [](const Expansion& entry, char32_t value) { return entry.code < value; });
  if (expansion != expansions.end() && expansion->code == code) return expansion->text;
  if (const CaseRun* run = find_range(runs, code); run != nullptr && (code - run->first) % run->stride == 0)
    code = static_cast<char32_t>(static_cast<std::int64_t>(code) + run->delta);
  std::string mapped;
  append_utf8(mapped, code);
  return mapped;
}

// Unicode's Final_Sigma: a cased character before it and none after it, case-ignorable ones not counted.
bool is_final_sigma(std::string_view text, std::size_t offset) {
  std::size_t before = offset;
  bool cased_before = false;
  while (before > 0) {
    const Character character = character_before(text, before);
    if (!contains(kCaseIgnorable, character.code)) {
      cased_before = is_cased(character.code);
      break;
    }
    before -= character.bytes;
  }
  if (!cased_before) return false;
  std::size_t after = offset + character_at(text, offset).bytes;
  while (after < text.size()) {
    const Character character = character_at(text, after);
    if (!contains(kCaseIgnorable, character.code)) return !is_cased(character.code);
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
  return contains(kSpace, code);
}
bool is_printable(char32_t code) {
  return !contains(kNotPrintable, code);
}
bool is_decimal(char32_t code) {
  return contains(kDecimal, code);
}
bool is_cased(char32_t code) {
  return contains(kCased, code);
}

std::string upper(char32_t code) {
  return map_case(kUpperRuns, kUpperExpansions, code);
}
std::string title(char32_t code) {
  return map_case(kTitleRuns, kTitleExpansions, code);
}

std::string lower(std::string_view text, std::size_t offset) {
  const char32_t code = character_at(text, offset).code;
  if (code == kCapitalSigma && is_final_sigma(text, offset)) return kFinalSigma;
  return map_case(kLowerRuns, kLowerExpansions, code);
}

}  // namespace espalier::jinja
