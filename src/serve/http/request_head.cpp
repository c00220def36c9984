#include "serve/http/request_head.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <string>

namespace espalier {
namespace {

namespace beast_http = boost::beast::http;
using HeadParser = beast_http::request_parser<beast_http::empty_body>;

bool is_allowed_in_head(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte != 0x7f) || c == '\t' || c == '\r' || c == '\n';
}

HttpRefusal malformed_head() {
  return {.status = 400, .message = "the bytes are not an HTTP request"};
}

// A request line of three parts, the last of which might be a version, as HTTP/2.0 is.
bool names_a_version(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\r'));
  return std::ranges::count(line, ' ') == 2 && line.substr(line.rfind(' ') + 1).starts_with("HTTP/");
}

HttpRefusal parse_refusal(const boost::system::error_code& error, const HeadParser& parser, std::string_view bytes) {
  if (error == beast_http::error::bad_version && names_a_version(bytes))
    return {.status = 400, .message = "expected HTTP/1.1 or HTTP/1.0"};
  // Beast refuses some of these itself; what they are refused with must not depend on the order of headers.
  if (error == beast_http::error::bad_transfer_encoding ||
      parser.get().find(beast_http::field::transfer_encoding) != parser.get().end())
    return {.status = 411, .message = "Transfer-Encoding is not taken; send Content-Length"};
  return malformed_head();
}

HttpHead head_of(const HeadParser& parser, RequestTarget target) {
  HttpHead head;
  const auto& message = parser.get();
  head.method = std::string(message.method_string());
  head.target = std::move(target);
  head.minor_version = static_cast<int>(message.version() % 10);
  for (const auto& field : message)
    head.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  return head;
}

std::variant<std::monostate, HttpHead, HttpRefusal> parse_head(std::string_view bytes) {
  HeadParser parser;
  parser.header_limit(static_cast<std::uint32_t>(bytes.size() + 1));  // ours has been kept already
  parser.body_limit(boost::none);
  boost::system::error_code error;
  parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error) return parse_refusal(error, parser, bytes);
  if (!parser.is_header_done()) return malformed_head();
  const auto text = parser.get().target();
  std::optional<RequestTarget> target = parse_request_target({text.data(), text.size()});
  const bool for_the_server = target && target->path == "*";
  if (!target || (for_the_server && parser.get().method() != beast_http::verb::options))
    return HttpRefusal{.status = 400, .message = "the request's target is not a path"};
  return head_of(parser, std::move(*target));
}

}  // namespace

std::size_t blank_lines(std::string_view bytes) {
  std::size_t length = 0;
  while (bytes.substr(length).starts_with("\r\n")) length += 2;
  return length;
}

HeadReader::Found HeadReader::scan(std::string_view bytes) {
  for (; looked_at_ < bytes.size(); ++looked_at_) {
    if (looked_at_ >= limit_) return Found::too_long;
    const char c = bytes[looked_at_];
    const bool after_return = looked_at_ > line_begin_ && bytes[looked_at_ - 1] == '\r';
    const bool continues = looked_at_ == line_begin_ && (c == ' ' || c == '\t');
    if (!is_allowed_in_head(c) || continues || after_return != (c == '\n')) return Found::malformed;
    if (c != '\n') continue;
    const bool blank = looked_at_ == line_begin_ + 1;
    line_begin_ = looked_at_ + 1;
    if (!blank) continue;
    looked_at_ = line_begin_;
    return looked_at_ == 2 ? Found::malformed : Found::end;
  }
  return Found::nothing;
}

std::variant<std::monostate, HttpHead, HttpRefusal> HeadReader::read(std::string_view bytes) {
  switch (scan(bytes)) {
    case Found::nothing: return std::monostate();
    case Found::malformed: return malformed_head();
    case Found::too_long: return HttpRefusal{.status = 431, .message = "the headers are too long"};
    case Found::end: break;
  }
  return parse_head(bytes.substr(0, looked_at_));
}

}  // namespace espalier
