#include "engine/canonical_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/sha256.h"

namespace espalier {
namespace {

// What would make two different texts alike.
bool breaks_a_line(char c) {
  return static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
}

std::string or_dash(std::string values) {
  return values.empty() ? "-" : values;
}

}  // namespace

std::string canonical_real(float value) {
  return fmt::format("{:08x}", std::bit_cast<std::uint32_t>(value));
}

std::string canonical_bytes(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return or_dash(std::move(digits));
}

CanonicalText::CanonicalText(std::string_view title) : lines_(fmt::format("{}\n", title)) {}

void CanonicalText::line(std::string_view name, std::string_view values) {
  lines_ += fmt::format("{} {}\n", name, values);
}

void CanonicalText::word(std::string_view name, std::string_view value) {
  check(value != "-" && std::ranges::none_of(value, breaks_a_line), "{}: no word", name);
  line(name, or_dash(std::string(value)));
}

void CanonicalText::number(std::string_view name, std::int64_t value) {
  line(name, std::to_string(value));
}

void CanonicalText::natural(std::string_view name, std::uint64_t value) {
  line(name, std::to_string(value));
}

void CanonicalText::real(std::string_view name, float value) {
  line(name, canonical_real(value));
}

void CanonicalText::flag(std::string_view name, bool value) {
  line(name, value ? "1" : "0");
}

void CanonicalText::text(std::string_view name, std::string_view bytes) {
  line(name, canonical_bytes(bytes));
}

void CanonicalText::texts(std::string_view name, const std::vector<std::string>& all) {
  std::vector<std::string> digits;
  for (const std::string& one : all) digits.push_back(canonical_bytes(one));
  line(name, or_dash(fmt::format("{}", fmt::join(digits, " "))));
}

void CanonicalText::numbers(std::string_view name, std::span<const std::int32_t> values) {
  line(name, or_dash(fmt::format("{}", fmt::join(values, " "))));
}

std::string CanonicalText::sha256() const {
  return espalier::sha256(std::as_bytes(std::span(lines_)));
}

}  // namespace espalier
