// What web pages may do with the server. Pages of other sites can make a browser send requests to us; three rules stop
// them, as pure functions of a request's head:
//  - Host: on loopback it must be a loopback name, or a name that was allowed. A page whose own name was pointed at
//    127.0.0.1 (DNS rebinding) is thus refused.
//  - Origin: where a browser sends it, it must be our own (equal to Host) or one that was allowed.
//  - CORS: only allowed origins get the headers that let a page read the answer. Keys travel in headers, so nothing is
//  ever
//    allowed "with credentials".
// That POST needs application/json, which no page can send without asking first, is in request_rules.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_types.h"

namespace espalier {

struct CorsOrigins {
  bool any = false;
  bool localhost = false;            // loopback names with any port, http or https
  std::vector<std::string> origins;  // scheme://host[:port]
};

// "none" or "", "localhost", "*", or a list of these and of origins with commas between. Throws InputError naming the
// flag.
CorsOrigins parse_cors_origins(std::string_view text);

// A name or address for BrowserRules::allow_hosts; one with a port or a scheme is an InputError naming the flag.
std::string parse_allow_host(std::string_view text);

struct BrowserRules {
  bool loopback = true;                  // the server listens on loopback alone; it sets this itself
  std::vector<std::string> allow_hosts;  // names besides the loopback ones, without ports
  CorsOrigins cors;
};

// localhost, an address of 127.0.0.0/8, or ::1, with or without brackets; no port.
bool is_loopback_host(std::string_view host);

// 403, or nothing.
std::optional<HttpRefusal> refuse_browser(const HttpHead& head, const BrowserRules& rules);

// What every answer to this request carries, errors too, so that the page can read them.
std::vector<HttpHeader> cors_headers(const HttpHead& head, const BrowserRules& rules);

// The answer to OPTIONS, which asks for no key: for a preflight, with what the page may send. `cors_headers` come
// besides.
HttpResponse answer_options(const HttpHead& head, const BrowserRules& rules);

}  // namespace espalier
