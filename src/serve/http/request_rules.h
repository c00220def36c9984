// What HTTP itself asks of a request before its body is read, as pure functions of the head, and the server's own
// refusals.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "serve/http/http_limits.h"
#include "serve/http/http_types.h"

namespace espalier {

// Where the body ends must never be in doubt: exactly one Host, no Transfer-Encoding (411: nobody who talks to us needs
// it), at most one Content-Length, of digits alone. Whoever breaks this is answered and the connection closed, since
// what follows cannot be trusted to be a request.
std::optional<HttpRefusal> refuse_framing(const HttpHead& head);

// 411, 413, 415, 417: a body that is missing, too large, not JSON, or comes with an expectation we do not know.
// Requires that the framing was not refused.
std::optional<HttpRefusal> refuse_body(const HttpHead& head, const HttpLimits& limits);

HttpRefusal too_slow(std::string_view what);  // 408
HttpRefusal shutting_down();                  // 503
HttpRefusal no_key();                         // 401
HttpRefusal no_answer(std::string_view id);   // 500: our fault, and nothing of the inside

// Of a head that was not refused.
std::size_t body_length(const HttpHead& head);
bool expects_continue(const HttpHead& head);
bool wants_keep_alive(const HttpHead& head);

}  // namespace espalier
