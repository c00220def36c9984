#include "report/markup.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace espalier {
namespace {

constexpr std::size_t kLongestSlug = 60;

// The characters of XML 1.0, without those that HTML would not show.
bool is_text(char32_t c) {
  if (c == '\n' || c == '\t') return true;
  const bool control = c < 0x20 || (c >= 0x7F && c <= 0x9F);
  const bool noncharacter = (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF);
  return !control && !noncharacter;
}

void append_escaped(std::string_view character, std::string& markup) {
  switch (character.front()) {
    case '&': markup += "&amp;"; break;
    case '<': markup += "&lt;"; break;
    case '>': markup += "&gt;"; break;
    case '"': markup += "&quot;"; break;
    case '\'': markup += "&#39;"; break;
    default: markup += character;
  }
}

}  // namespace

std::string markup_text(std::string_view text) {
  std::string markup;
  markup.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind == Utf8Step::Kind::character && is_text(step.code_point)) {
      append_escaped(text.substr(0, step.size), markup);
    } else {
      markup += kReplacementCharacter;
    }
    text.remove_prefix(step.size);
  }
  return markup;
}

std::string script_json(const nlohmann::ordered_json& value) {
  const std::string json = value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {  // outside of strings JSON has none of these
    switch (c) {
      case '<': safe += "\\u003c"; break;
      case '>': safe += "\\u003e"; break;
      case '&': safe += "\\u0026"; break;
      default: safe += c;
    }
  }
  return safe;
}

std::string slug(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || upper;
    if (kept) name += upper ? static_cast<char>(c - 'A' + 'a') : c;
    if (!kept && !name.empty() && name.back() != '-') name += '-';
  }
  name.resize(std::min(name.size(), kLongestSlug));
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "x" : name;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace espalier
