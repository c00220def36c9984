// What the server and the application behind it tell each other about one request: plain values, no sockets, no
// threads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/request_target.h"

namespace espalier {

struct HttpHeader {
  std::string name;
  std::string value;

  bool operator==(const HttpHeader&) const = default;
};

// A request without its body: all that is known when the server decides whether to read the rest.
struct HttpHead {
  std::string method;  // as it was sent, case matters; the server shows HEAD as GET (`bodiless`)
  RequestTarget target;
  int minor_version = 1;            // HTTP/1.0 or HTTP/1.1
  std::vector<HttpHeader> headers;  // those of one name together, in the order they came
  bool bodiless = false;            // it was HEAD: the server leaves the body of the answer away
  std::string id;                   // of this request, 24 hexadecimal digits, in X-Request-Id unless the answer has one
  int key = -1;                     // which of the server's API keys came with it; -1: none did

  // The value of the first header of that name, in any case.
  std::optional<std::string_view> header(std::string_view name) const;
  std::size_t count(std::string_view name) const;
  // Whether a header that is a list, such as Connection, has this item, in any case.
  bool header_lists(std::string_view name, std::string_view item) const;
};

struct HttpRequest {
  HttpHead head;
  std::string body;
};

// A whole answer. Content-Length, Connection, X-Request-Id, the CORS headers and X-Content-Type-Options are the
// server's; so is Cache-Control: no-store, unless the answer has another.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers{};
  std::string body{};
};

// An answer that is an error. Its body comes from HttpApplication::error_body, so that all errors look alike.
struct HttpRefusal {
  int status = 400;
  std::string message{};  // one line
  std::vector<HttpHeader> headers{};
};

bool equal_ignoring_case(std::string_view a, std::string_view b);  // of ASCII letters

}  // namespace espalier
