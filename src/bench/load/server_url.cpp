#include "bench/load/server_url.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::string_view kScheme = "http://";

// What may stand in a request's first line and in Host as it is.
bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '<' && c != '>'; });
}

int parse_port(std::string_view digits) {
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && port >= 1 && port <= 65535 ? port : 0;
}

// HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT; the host stays empty where it is none of them.
void read_authority(std::string_view authority, ServerUrl& url) {
  const bool bracketed = authority.starts_with('[');
  const std::size_t end = bracketed ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (end == std::string_view::npos) return;
  const std::string_view rest = authority.substr(end + (bracketed ? 1 : 0));
  if (!rest.empty()) url.port = rest.starts_with(':') ? parse_port(rest.substr(1)) : 0;
  url.host = bracketed ? authority.substr(1, end - 1) : authority.substr(0, end);
}

}  // namespace

std::string ServerUrl::authority() const {
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  return bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string ServerUrl::text() const {
  return fmt::format("{}{}{}", kScheme, authority(), prefix);
}

ServerUrl parse_server_url(std::string_view text, std::string_view flag) {
  ServerUrl url;
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    read_authority(rest.substr(0, slash), url);
    rest.remove_prefix(slash);
    while (rest.ends_with('/')) rest.remove_suffix(1);
    if (rest.ends_with("/v1")) rest.remove_suffix(3);
    url.prefix = rest;
  }
  const bool odd = !is_plain(text) || text.find_first_of("?#@") != std::string_view::npos;
  if (url.host.empty() || url.port == 0 || odd)
    input_error("{}: expected http://HOST[:PORT], got {}", flag, in_quotes(text));
  return url;
}

}  // namespace espalier
