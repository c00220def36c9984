// From an answer to bytes: heads, whole answers, and the chunks of a stream. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_types.h"

namespace espalier {

// What of an answer depends on its request and on the connection.
struct HttpFrame {
  int minor_version = 1;
  bool bodiless = false;
  bool keep_alive = true;
  std::string id{};
  std::vector<HttpHeader> cors{};

  // HTTP/1.0 knows no chunks: there a stream ends with the connection.
  bool chunked() const { return minor_version > 0; }
};

// All of these can be sent: no line breaks in them, nothing that is the server's to say. Otherwise it is a
// mistake of ours (std::logic_error).
void check_answer(int status, std::string_view content_type, const std::vector<HttpHeader>& headers);

std::string whole_answer(const HttpResponse& response, const HttpFrame& frame);

std::string event_stream_head(const std::vector<HttpHeader>& headers, const HttpFrame& frame);
// Some bytes of the stream, and what ends it. Nothing for no bytes, since an empty chunk is the end.
std::string stream_piece(std::string_view bytes, const HttpFrame& frame);
std::string stream_end(const HttpFrame& frame);

inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
inline constexpr std::string_view kEventComment = ":\n\n";

}  // namespace espalier
