// From bytes to the head of a request, by Boost.Beast's parser behind this header. Knows no sockets: tests and the
// fuzzer feed it what they like.
//
// Stricter than HTTP has to be, because what two programs read differently is how requests are smuggled: lines end with
// CR LF, no header is continued on the next line, there are no control characters. What breaks this is refused as soon
// as it shows, without waiting for the end of the head.
#pragma once

#include <cstddef>
#include <string_view>
#include <variant>

#include "serve/http/http_types.h"

namespace espalier {

// How many bytes at the beginning are blank lines, which HTTP lets a server pass over before a request.
std::size_t blank_lines(std::string_view bytes);

// Finds and reads one head in bytes that arrive in any pieces. Looks at each byte once.
class HeadReader {
 public:
  // `limit`: of the head's bytes, with the blank line at its end.
  explicit HeadReader(std::size_t limit) : limit_(limit) {}

  // `bytes` begins with the request line, and is what was given before with more behind it. Nothing: more is needed. A
  // refusal is 400 (also for another version of HTTP: nothing that a client sends is our fault, and 5xx would be tried
  // again), 411 (an encoding that Beast itself refuses) or 431.
  std::variant<std::monostate, HttpHead, HttpRefusal> read(std::string_view bytes);
  // How long the head is. Requires that it was read.
  std::size_t size() const { return looked_at_; }

 private:
  enum class Found { nothing, end, malformed, too_long };
  Found scan(std::string_view bytes);

  std::size_t limit_;
  std::size_t looked_at_ = 0;
  std::size_t line_begin_ = 0;  // of the line that `looked_at_` is in
};

}  // namespace espalier
