#include "serve/http/response_bytes.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

constexpr auto kReasons = std::to_array<std::pair<int, std::string_view>>({
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
});

constexpr auto kOwnHeaders = std::to_array<std::string_view>(
    {"Connection", "Content-Length", "Content-Type", "Transfer-Encoding", "X-Content-Type-Options"});

constexpr int kNoContent = 204;

std::string_view reason_of(int status) {
  const auto* found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found == kReasons.end() ? "" : found->second;
}

bool has_header(const std::vector<HttpHeader>& headers, std::string_view name) {
  return std::ranges::any_of(headers, [&](const HttpHeader& header) { return equal_ignoring_case(header.name, name); });
}

bool is_header_text(std::string_view text) {
  return std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool is_name_text(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

void add_line(std::string& out, std::string_view name, std::string_view value) {
  fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
}

// Everything that all answers have; the blank line is still to come.
std::string common_head(int status, const std::vector<HttpHeader>& headers, const HttpFrame& frame) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_of(status));
  for (const HttpHeader& header : headers) add_line(out, header.name, header.value);
  for (const HttpHeader& header : frame.cors) add_line(out, header.name, header.value);
  if (!has_header(headers, "X-Request-Id")) add_line(out, "X-Request-Id", frame.id);
  add_line(out, "X-Content-Type-Options", "nosniff");
  if (!frame.keep_alive) {
    add_line(out, "Connection", "close");
  } else if (frame.minor_version == 0) {
    add_line(out, "Connection", "keep-alive");
  }
  return out;
}

}  // namespace

void check_answer(int status, std::string_view content_type, const std::vector<HttpHeader>& headers) {
  check(status >= 200 && status <= 599, "an answer with status {}", status);
  check(!content_type.empty() && is_header_text(content_type), "an answer whose Content-Type is no header");
  for (const HttpHeader& header : headers) {
    check(is_name_text(header.name) && is_header_text(header.value), "an answer's header {} that is no header",
          header.name);
    check(std::ranges::none_of(kOwnHeaders,
                               [&](std::string_view name) { return equal_ignoring_case(name, header.name); }),
          "an answer that sets {}, which is the server's", header.name);
  }
}

std::string whole_answer(const HttpResponse& response, const HttpFrame& frame) {
  std::string out = common_head(response.status, response.headers, frame);
  if (!has_header(response.headers, "Cache-Control")) add_line(out, "Cache-Control", "no-store");
  if (response.status != kNoContent) {
    add_line(out, "Content-Type", response.content_type);
    add_line(out, "Content-Length", fmt::to_string(response.body.size()));
  }
  out += "\r\n";
  if (response.status != kNoContent && !frame.bodiless) out += response.body;
  return out;
}

std::string event_stream_head(const std::vector<HttpHeader>& headers, const HttpFrame& frame) {
  std::string out = common_head(200, headers, frame);
  add_line(out, "Content-Type", "text/event-stream");
  add_line(out, "Cache-Control", "no-cache");
  add_line(out, "X-Accel-Buffering", "no");
  if (frame.chunked()) add_line(out, "Transfer-Encoding", "chunked");
  return out + "\r\n";
}

std::string stream_piece(std::string_view bytes, const HttpFrame& frame) {
  if (bytes.empty() || frame.bodiless) return {};
  if (!frame.chunked()) return std::string(bytes);
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

std::string stream_end(const HttpFrame& frame) {
  return frame.chunked() && !frame.bodiless ? "0\r\n\r\n" : "";
}

}  // namespace espalier
