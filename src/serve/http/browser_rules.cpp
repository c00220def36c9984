#include "serve/http/browser_rules.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::string_view kUsualHeaders = "Authorization, Content-Type, X-Api-Key";

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

// A name, an IPv4 address, or an IPv6 address in brackets.
bool is_host(std::string_view text) {
  if (text.starts_with('[')) {
    const auto is_address = [](char c) { return is_host_character(c) || c == ':'; };
    return text.size() > 2 && text.ends_with(']') && std::ranges::all_of(text.substr(1, text.size() - 2), is_address);
  }
  return !text.empty() && std::ranges::all_of(text, is_host_character);
}

// "host:port" without the port; nothing: it is not that.
std::optional<std::string_view> host_of(std::string_view authority) {
  const std::size_t address_end = authority.starts_with('[') ? std::min(authority.find(']'), authority.size()) : 0;
  const std::size_t colon = authority.find(':', address_end);
  if (colon != std::string_view::npos && !is_port(authority.substr(colon + 1))) return std::nullopt;
  const std::string_view host = authority.substr(0, colon);
  return is_host(host) ? std::optional(host) : std::nullopt;
}

struct Origin {
  std::string_view scheme;
  std::string_view authority;
};

// "null" and what else has no scheme is nothing.
std::optional<Origin> split_origin(std::string_view text) {
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const Origin origin{text.substr(0, colon), text.substr(colon + 3)};
  return std::ranges::all_of(origin.scheme, is_host_character) && host_of(origin.authority) ? std::optional(origin)
                                                                                            : std::nullopt;
}

bool is_web(std::string_view scheme) {
  return equal_ignoring_case(scheme, "http") || equal_ignoring_case(scheme, "https");
}

bool contains_name(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::any_of(names, [&](const std::string& each) { return equal_ignoring_case(each, name); });
}

bool host_allowed(std::string_view authority, const BrowserRules& rules) {
  const auto host = host_of(authority);
  return host && (is_loopback_host(*host) || contains_name(rules.allow_hosts, *host));
}

bool origin_listed(std::string_view text, const CorsOrigins& cors) {
  if (cors.any || contains_name(cors.origins, text)) return true;
  const auto origin = split_origin(text);
  return cors.localhost && origin && is_web(origin->scheme) && is_loopback_host(*host_of(origin->authority));
}

// The page came from us. The scheme is not compared: behind a proxy that does TLS theirs is https and ours is not.
bool is_own_origin(std::string_view text, const HttpHead& head) {
  const auto origin = split_origin(text);
  return origin && is_web(origin->scheme) && equal_ignoring_case(origin->authority, head.header("Host").value_or(""));
}

bool is_header_list(std::string_view text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return is_host_character(c) || c == ',' || c == ' '; });
}

void add_cors_origin(std::string_view text, CorsOrigins& cors) {
  if (text == "*") {
    cors.any = true;
  } else if (text == "localhost") {
    cors.localhost = true;
  } else if (split_origin(text)) {
    cors.origins.emplace_back(text);
  } else {
    input_error("--cors-origins: expected none, localhost, * or origins such as https://example.com, got {}",
                in_quotes(text));
  }
}

}  // namespace

CorsOrigins parse_cors_origins(std::string_view text) {
  CorsOrigins cors;
  if (text.empty() || text == "none") return cors;
  while (true) {
    const std::size_t comma = text.find(',');
    add_cors_origin(text.substr(0, comma), cors);
    if (comma == std::string_view::npos) return cors;
    text.remove_prefix(comma + 1);
  }
}

std::string parse_allow_host(std::string_view text) {
  const bool bare_ipv6 = std::ranges::count(text, ':') > 1 && !text.starts_with('[');
  std::string host = bare_ipv6 ? fmt::format("[{}]", text) : std::string(text);
  if (!is_host(host)) input_error("--allow-host: expected a name or an address without port, got {}", in_quotes(text));
  return host;
}

bool is_loopback_host(std::string_view host) {
  if (equal_ignoring_case(host, "localhost")) return true;
  const bool brackets = host.starts_with('[') && host.ends_with(']');
  const std::string address(brackets ? host.substr(1, host.size() - 2) : host);
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return !brackets && ::inet_pton(AF_INET, address.c_str(), &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}

std::optional<HttpRefusal> refuse_browser(const HttpHead& head, const BrowserRules& rules) {
  const std::string_view host = head.header("Host").value_or("");
  const std::string& proxied = head.target.authority;
  if (rules.loopback && !host_allowed(host, rules))
    return HttpRefusal{403, fmt::format("Host {} is not allowed here (--allow-host adds names)", in_quotes(host)), {}};
  if (rules.loopback && !proxied.empty() && !host_allowed(proxied, rules))
    return HttpRefusal{
        403, fmt::format("Host {} is not allowed here (--allow-host adds names)", in_quotes(proxied)), {}};
  const auto origin = head.header("Origin");
  if (!origin || is_own_origin(*origin, head) || origin_listed(*origin, rules.cors)) return std::nullopt;
  return HttpRefusal{
      403, fmt::format("Origin {} is not allowed here (--cors-origins adds some)", in_quotes(*origin)), {}};
}

std::vector<HttpHeader> cors_headers(const HttpHead& head, const BrowserRules& rules) {
  const CorsOrigins& cors = rules.cors;
  std::vector<HttpHeader> headers;
  if (!cors.any && (cors.localhost || !cors.origins.empty())) headers.push_back({"Vary", "Origin"});
  const auto origin = head.header("Origin");
  if (!origin || !origin_listed(*origin, cors)) return headers;
  headers.push_back({"Access-Control-Allow-Origin", cors.any ? "*" : std::string(*origin)});
  headers.push_back({"Access-Control-Expose-Headers", "Retry-After, X-Request-Id"});
  return headers;
}

HttpResponse answer_options(const HttpHead& head, const BrowserRules& rules) {
  HttpResponse response{.status = 204, .headers = {{"Allow", "GET, HEAD, POST, OPTIONS"}}};
  const auto origin = head.header("Origin");
  if (!origin || !head.header("Access-Control-Request-Method") || !origin_listed(*origin, rules.cors)) return response;
  // Clients send headers of their own (the openai package a dozen), so whatever is asked for is granted.
  const std::string_view asked = head.header("Access-Control-Request-Headers").value_or("");
  response.headers.push_back({"Access-Control-Allow-Methods", "GET, HEAD, POST"});
  response.headers.push_back(
      {"Access-Control-Allow-Headers", std::string(is_header_list(asked) ? asked : kUsualHeaders)});
  response.headers.push_back({"Access-Control-Max-Age", "600"});
  if (head.header("Access-Control-Request-Private-Network"))
    response.headers.push_back({"Access-Control-Allow-Private-Network", "true"});
  return response;
}

}  // namespace espalier
