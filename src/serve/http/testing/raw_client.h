// A client for tests of servers: a plain socket that sends exactly the bytes it is told to, and reads answers whole or
// as they come. Nothing waits longer than kPatience; what did not come by then is a failure of the test, seen as an
// empty result (library espalier_serve_http_testing).
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http/http_types.h"

namespace espalier {

struct RawAnswer {
  int status = 0;  // 0: there was none
  std::vector<HttpHeader> headers{};
  std::string body{};     // without chunk framing
  bool complete = false;  // it ended as its headers said it would

  std::string header(std::string_view name) const;  // "": absent
};

class RawClient {
 public:
  static constexpr std::chrono::seconds kPatience{20};
  static constexpr std::size_t kMostAtOnce = std::size_t{64} << 10;

  // Throws DeviceError where nobody listens.
  explicit RawClient(int port, const std::string& address = "127.0.0.1");
  ~RawClient();
  RawClient(RawClient&& other) noexcept;
  RawClient& operator=(RawClient&&) = delete;

  // False: the server does not take it.
  bool send(std::string_view bytes);
  // The next bytes, asking the system for at most so many; empty: the connection has ended, or nothing came.
  std::string read_some(std::size_t most = kMostAtOnce);
  // Waits until this text was read. What was read of the answer so far.
  std::string read_until(std::string_view text);
  // The next answer, interim ones (100) too. `bodiless`: it answers HEAD.
  RawAnswer read_answer(bool bodiless = false);
  // Everything until the connection ends.
  std::string read_to_end();
  // The server has ended the connection, by closing or resetting it; what it sent before is thrown away.
  bool ended();
  // Whether the server has closed the connection or sent something, at this moment.
  bool readable() const;

  void half_close();                       // "I send no more"
  void close();                            // the usual way
  void reset();                            // as a crash does
  void shrink_buffers(std::size_t bytes);  // so that the server notices soon who does not read
  int descriptor() const { return socket_; }

 private:
  bool fill(std::size_t most = kMostAtOnce);  // reads some bytes into received_; false: there are none
  bool read_chunks(std::string& body);

  int socket_ = -1;
  std::string received_;
};

// A POST of JSON, as clients send it.
std::string post_bytes(std::string_view path, std::string_view body, std::string_view more_headers = "");
std::string get_bytes(std::string_view path, std::string_view more_headers = "");

}  // namespace espalier
