// What a client may use up before the server loses patience. The defaults are those of docs/serving.md; tests use
// milliseconds. Times are for whole phases: bytes that trickle in do not extend them.
#pragma once

#include <chrono>
#include <cstddef>

namespace espalier {

struct HttpLimits {
  using Time = std::chrono::milliseconds;

  int connections = 256;                             // then accepting waits; a kept connection that is idle makes room
  std::size_t header_bytes = std::size_t{16} << 10;  // request line, headers and the blank line behind them
  std::size_t body_bytes = std::size_t{4} << 20;
  std::size_t outbox_bytes = std::size_t{1} << 20;  // of a stream, not taken by the client: then it counts as gone
  int requests = 1000;                              // on one connection

  Time header_time{10'000};  // from the first byte, for a new connection from its beginning
  Time body_time{30'000};
  Time idle_time{60'000};     // between two requests on one connection
  Time write_time{30'000};    // without a byte of progress, then the client counts as gone
  Time linger_time{2'000};    // for a client to read the last answer before a connection with unread bytes is closed
  Time silence_time{15'000};  // then an event stream carries a comment line
  Time look_time{1'000};      // how often a client is looked after that has sent its next request already
  Time accept_pause{100};     // when the system has no file descriptor or memory for another connection
};

}  // namespace espalier
