#include "serve/http/timed_socket.h"

#include <boost/asio/buffer.hpp>
#include <chrono>

#include "serve/http/client_socket.h"

namespace espalier {

void TimedSocket::set_deadline(HttpLimits::Time time) {
  timed_out_ = false;
  deadline_.expires_after(time);
  deadline_.async_wait([self = shared_from_this()](const error_code& error) {
    // A time that was changed when this call was already on its way.
    if (error || self->deadline_.expiry() > std::chrono::steady_clock::now()) return;
    self->timed_out_ = true;
    self->cancel();
  });
}

// Not cancel(): a call that is already on its way would still find its time come.
void TimedSocket::clear_deadline() {
  deadline_.expires_at(std::chrono::steady_clock::time_point::max());
}

asio::awaitable<bool> TimedSocket::receive(std::string& bytes, std::size_t most) {
  if (timed_out_) co_return false;
  const std::size_t size = bytes.size();
  bytes.resize(size + most);
  error_code error;
  const std::size_t count = co_await socket_.async_read_some(asio::buffer(bytes.data() + size, most), awaiting(error));
  bytes.resize(size + count);
  co_return !error;
}

// The system takes bytes in large portions: a client that takes none of them for long may still be reading, and
// acknowledges what it has read.
asio::awaitable<std::optional<std::size_t>> TimedSocket::send_some(std::string_view bytes, HttpLimits::Time time) {
  error_code error;
  const int before = unacknowledged_bytes(descriptor());
  set_deadline(time);
  const std::size_t count =
      co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()), awaiting(error));
  const bool slow = error && timed_out_ && unacknowledged_bytes(descriptor()) < before;
  if (error && !slow) co_return std::nullopt;
  co_return count;
}

asio::awaitable<void> TimedSocket::linger(HttpLimits::Time time) {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  if (error) co_return;
  set_deadline(time);
  constexpr std::size_t kUnreadBytes = std::size_t{16} << 10;
  std::string unread;
  while (co_await receive(unread, kUnreadBytes)) unread.clear();
}

void TimedSocket::cancel() {
  error_code ignored;
  socket_.cancel(ignored);
}

void TimedSocket::close() {
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
}

void TimedSocket::reset() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  close();
}

}  // namespace espalier
