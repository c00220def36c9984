#include "serve/http/http_types.h"

#include <algorithm>

namespace espalier {
namespace {

char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool list_has(std::string_view list, std::string_view item) {
  while (true) {
    const std::size_t comma = list.find(',');
    if (equal_ignoring_case(without_blanks(list.substr(0, comma)), item)) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, ascii_lower, ascii_lower);
}

std::optional<std::string_view> HttpHead::header(std::string_view name) const {
  for (const HttpHeader& header : headers)
    if (equal_ignoring_case(header.name, name)) return header.value;
  return std::nullopt;
}

std::size_t HttpHead::count(std::string_view name) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(headers, [&](const HttpHeader& header) { return equal_ignoring_case(header.name, name); }));
}

bool HttpHead::header_lists(std::string_view name, std::string_view item) const {
  return std::ranges::any_of(headers, [&](const HttpHeader& header) {
    return equal_ignoring_case(header.name, name) && list_has(header.value, item);
  });
}

}  // namespace espalier
