#include "serve/http/request_target.h"

#include <algorithm>

#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::string_view kProxyScheme = "http://";

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Letters of a target as it was sent; others have to come as %XX.
bool is_target_character(char c) {
  return c > ' ' && c < 0x7f && c != '#';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

enum class Plus { itself, space };

std::optional<std::string> percent_decoded(std::string_view text, Plus plus) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' && plus == Plus::space ? ' ' : text[i];
      continue;
    }
    const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (std::ranges::any_of(out, is_control) || !is_utf8(out)) return std::nullopt;
  return out;
}

bool add_parameter(std::string_view text, RequestTarget& target) {
  const std::size_t equals = text.find('=');
  std::optional<std::string> name = percent_decoded(text.substr(0, equals), Plus::space);
  std::optional<std::string> value =
      percent_decoded(equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1), Plus::space);
  if (!name || !value) return false;
  target.query.emplace_back(std::move(*name), std::move(*value));
  return true;
}

bool add_query(std::string_view text, RequestTarget& target) {
  while (!text.empty()) {
    const std::size_t ampersand = std::min(text.find('&'), text.size());
    if (ampersand > 0 && !add_parameter(text.substr(0, ampersand), target)) return false;
    text.remove_prefix(std::min(ampersand + 1, text.size()));
  }
  return true;
}

// Takes "http://host:port" from the front of what a proxy sends; false: there is no host.
bool take_authority(std::string_view& text, RequestTarget& target) {
  text.remove_prefix(kProxyScheme.size());
  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  target.authority = text.substr(0, end);
  text.remove_prefix(end);
  return !target.authority.empty() && target.authority.find('@') == std::string::npos;
}

}  // namespace

std::optional<std::string_view> RequestTarget::parameter(std::string_view name) const {
  for (const auto& [key, value] : query)
    if (key == name) return value;
  return std::nullopt;
}

std::optional<RequestTarget> parse_request_target(std::string_view text) {
  RequestTarget target;
  if (!std::ranges::all_of(text, is_target_character)) return std::nullopt;
  if (text == "*") {
    target.path = "*";
    return target;
  }
  if (text.starts_with(kProxyScheme) && !take_authority(text, target)) return std::nullopt;
  const std::size_t question = std::min(text.find('?'), text.size());
  const std::string_view encoded = question == 0 && !target.authority.empty() ? "/" : text.substr(0, question);
  std::optional<std::string> path = percent_decoded(encoded, Plus::itself);
  if (!encoded.starts_with('/') || !path) return std::nullopt;
  target.path = std::move(*path);
  if (!add_query(text.substr(std::min(question + 1, text.size())), target)) return std::nullopt;
  return target;
}

}  // namespace espalier
