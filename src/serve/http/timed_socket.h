// A client's socket whose operations end in time: a phase has a deadline, and what the socket waits for when that comes
// ends with an error. Asio is seen here and by those who include this: files of this folder alone. Lives on the I/O
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/http_limits.h"

namespace espalier {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// The result of an operation goes to `error` instead of an exception: a client that is gone is nothing exceptional.
inline auto awaiting(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

// Shared by its owner and by a deadline that is on its way.
class TimedSocket : public std::enable_shared_from_this<TimedSocket> {
 public:
  explicit TimedSocket(tcp::socket socket) : socket_(std::move(socket)), deadline_(socket_.get_executor()) {}

  // The phase that begins now has to end in this time.
  void set_deadline(HttpLimits::Time time);
  void clear_deadline();
  // The last deadline that was set has come.
  bool timed_out() const { return timed_out_; }

  // Appends what arrives next, at most so many bytes. False: the client has ended, or its time.
  asio::awaitable<bool> receive(std::string& bytes, std::size_t most);
  // Sends some of them, as long as the client takes any within this time. How many; nothing: it is gone.
  asio::awaitable<std::optional<std::size_t>> send_some(std::string_view bytes, HttpLimits::Time time);
  // Says that nothing follows, and waits for the client to say the same, for so long. Closing while it still sends
  // would make the system reset the connection, and the client lose the answer.
  asio::awaitable<void> linger(HttpLimits::Time time);

  // Calls back once there is something to read, or the client's end.
  template <typename Callback>
  void wait_readable(Callback callback) {
    socket_.async_wait(tcp::socket::wait_read, std::move(callback));
  }
  bool is_open() const { return socket_.is_open(); }
  int descriptor() { return socket_.native_handle(); }

  void cancel();  // what it waits for
  void close();
  // So that the client cannot take what it has got for the whole: it sees a reset instead of an end.
  void reset();

 private:
  tcp::socket socket_;
  asio::steady_timer deadline_;
  bool timed_out_ = false;
};

}  // namespace espalier
