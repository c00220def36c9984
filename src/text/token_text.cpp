#include "text/token_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "text/unicode.h"
#include "text/utf8.h"

namespace espalier {
namespace {

std::string escaped(char32_t c) {
  switch (c) {
    case '\n': return "\\n";
    case '\t': return "\\t";
    case '\r': return "\\r";
    default: break;
  }
  return c < 0x100 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                   : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
}

// The characters of a text, each with its columns. Bytes that are no character count as one column each.
struct Cell {
  std::string_view bytes;
  int columns;
};
std::vector<Cell> cells(std::string_view text) {
  std::vector<Cell> all;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    const bool whole = step.kind == Utf8Step::Kind::character;
    all.push_back({text.substr(at, step.size), whole ? terminal_columns(step.code_point) : 1});
    at += step.size;
  }
  return all;
}

constexpr std::string_view kEllipsis = "\u2026";

}  // namespace

std::string quoted_token(std::string_view bytes) {
  std::string shown = "\"";
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    const std::string_view part = bytes.substr(at, step.size);
    if (step.kind != Utf8Step::Kind::character) {
      for (const char byte : part) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    } else if (part == "\"" || part == "\\") {
      shown += fmt::format("\\{}", part);
    } else {
      shown += is_visible(step.code_point) ? std::string(part) : escaped(step.code_point);
    }
    at += step.size;
  }
  return shown + "\"";
}

int display_width(std::string_view text) {
  int width = 0;
  for (const Cell& cell : cells(text)) width += cell.columns;
  return width;
}

std::string cut_to_width(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  std::string kept;
  int used = 1;  // the ellipsis
  for (const Cell& cell : cells(text)) {
    if (used + cell.columns > width) break;
    kept += cell.bytes;
    used += cell.columns;
  }
  return width < 1 ? "" : kept + std::string(kEllipsis);
}

std::string cut_front_to_width(std::string_view text, int width) {
  int left = display_width(text);
  if (left <= width) return std::string(text);
  std::size_t begin = 0;
  for (const Cell& cell : cells(text)) {
    if (left + 1 <= width && cell.columns > 0) break;  // a mark without its letter is cut too
    begin += cell.bytes.size();
    left -= cell.columns;
  }
  return width < 1 ? "" : std::string(kEllipsis) + std::string(text.substr(begin));
}

std::string fit_to_width(std::string_view text, int width) {
  std::string fitted = cut_to_width(text, width);
  fitted.append(static_cast<std::size_t>(std::max(0, width - display_width(fitted))), ' ');
  return fitted;
}

}  // namespace espalier
