#include "report/markup.h"

#include <algorithm>
#include <cctype>
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

void append_escaped(char c, std::string& markup) {
  switch (c) {
    case '&': markup += "&amp;"; break;
    case '<': markup += "&lt;"; break;
    case '>': markup += "&gt;"; break;
    case '"': markup += "&quot;"; break;
    case '\'': markup += "&#39;"; break;
    default: markup += c;
  }
}

}  // namespace

std::string clean_text(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const bool kept = step.kind == Utf8Step::Kind::character && is_text(step.code_point);
    clean += kept ? text.substr(0, step.size) : kReplacementCharacter;
    text.remove_prefix(step.size);
  }
  return clean;
}

std::string markup_text(std::string_view text) {
  std::string markup;
  markup.reserve(text.size());
  for (const char c : clean_text(text)) append_escaped(c, markup);
  return markup;
}

std::string markdown_text(std::string_view text) {
  constexpr std::string_view kSigns = "\\`*[]|~#";
  std::string markdown;
  markdown.reserve(text.size());
  char before = ' ';
  for (const char c : clean_text(text)) {
    const bool edge = c == '_' && !std::isalnum(static_cast<unsigned char>(before));
    if (c == '<' || c == '&') {
      append_escaped(c, markdown);
    } else if (c == '\n' || c == '\t') {
      markdown += ' ';
    } else {
      if (edge || kSigns.find(c) != std::string_view::npos) markdown += '\\';
      markdown += c;
    }
    before = c;
  }
  return markdown;
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

}  // namespace espalier
