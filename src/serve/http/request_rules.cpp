#include "serve/http/request_rules.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/error.h"

namespace espalier {
namespace {

// More digits are more than any limit, and would not fit into a number.
constexpr std::size_t kMaxLengthDigits = 18;

constexpr std::string_view kExpectation = "100-continue";

bool is_length(std::string_view text) {
  return !text.empty() && text.size() <= kMaxLengthDigits &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_json_type(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  type = type.substr(0, type.find_last_not_of(" \t") + 1);
  return equal_ignoring_case(type, "application/json");
}

}  // namespace

std::optional<HttpRefusal> refuse_framing(const HttpHead& head) {
  if (head.count("Transfer-Encoding") > 0)
    return HttpRefusal{.status = 411, .message = "Transfer-Encoding is not taken; send Content-Length"};
  if (head.count("Host") > 1 || (head.count("Host") == 0 && head.minor_version > 0))
    return HttpRefusal{.status = 400, .message = "expected one Host header"};
  if (head.count("Content-Length") > 1 || !is_length(head.header("Content-Length").value_or("0")))
    return HttpRefusal{.status = 400, .message = "expected one Content-Length of decimal digits"};
  return std::nullopt;
}

std::optional<HttpRefusal> refuse_body(const HttpHead& head, const HttpLimits& limits) {
  const bool posts = head.method == "POST";
  if (posts && head.count("Content-Length") == 0)
    return HttpRefusal{.status = 411, .message = "a POST needs Content-Length"};
  if (body_length(head) > limits.body_bytes)
    return HttpRefusal{.status = 413,
                       .message = fmt::format("the body is too large: expected at most {} bytes, got {}",
                                              limits.body_bytes, body_length(head))};
  if (posts && !is_json_type(head.header("Content-Type").value_or("")))
    return HttpRefusal{.status = 415, .message = "a POST needs Content-Type: application/json"};
  if (!equal_ignoring_case(head.header("Expect").value_or(kExpectation), kExpectation))
    return HttpRefusal{.status = 417, .message = "of expectations only 100-continue is known"};
  return std::nullopt;
}

HttpRefusal too_slow(std::string_view what) {
  return {.status = 408, .message = fmt::format("{} took too long", what)};
}

HttpRefusal shutting_down() {
  return {.status = 503, .message = "the server is shutting down", .headers = {{"Retry-After", "1"}}};
}

HttpRefusal no_key() {
  return {.status = 401,
          .message = "expected an API key of this server, as Authorization: Bearer or X-Api-Key",
          .headers = {{"WWW-Authenticate", "Bearer"}}};
}

HttpRefusal no_answer(std::string_view id) {
  return {.status = 500, .message = fmt::format("the server failed to answer request {}", id)};
}

std::size_t body_length(const HttpHead& head) {
  const std::string_view text = head.header("Content-Length").value_or("0");
  std::size_t length = 0;
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

bool expects_continue(const HttpHead& head) {
  return head.minor_version > 0 && equal_ignoring_case(head.header("Expect").value_or(""), kExpectation);
}

bool wants_keep_alive(const HttpHead& head) {
  if (head.header_lists("Connection", "close")) return false;
  return head.minor_version > 0 || head.header_lists("Connection", "keep-alive");
}

}  // namespace espalier
