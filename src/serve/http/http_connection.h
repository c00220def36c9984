// One client's connection: a coroutine that reads a request, waits until it was answered, and reads the next. Lives on
// the I/O thread, as long as the coroutine or an operation of its own holds it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "serve/http/http_core.h"
#include "serve/http/http_exchange.h"
#include "serve/http/response_bytes.h"
#include "serve/http/timed_socket.h"

namespace espalier {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpCore& core, tcp::socket socket)
      : core_(core), socket_(std::make_shared<TimedSocket>(std::move(socket))) {}

  void start();
  void close_if_waiting();
  void stop_reading();
  void abort();

 private:
  using Incoming = std::variant<std::monostate, HttpHead, HttpRefusal>;
  using Clock = std::chrono::steady_clock;

  asio::awaitable<void> serve();
  asio::awaitable<bool> serve_next(bool first, bool last);
  asio::awaitable<void> apologise();
  asio::awaitable<Incoming> read_head(bool first);
  asio::awaitable<bool> wait_for_request(bool first);
  asio::awaitable<bool> serve_request(HttpHead head, bool last);
  asio::awaitable<std::optional<HttpRefusal>> read_body(std::size_t length, std::string& body);
  asio::awaitable<bool> exchange_for(HttpRequest request);
  asio::awaitable<bool> send_answer(std::shared_ptr<HttpExchange> exchange);
  asio::awaitable<bool> wait_for_news();
  asio::awaitable<bool> send_whole(const HttpResponse& response);
  asio::awaitable<void> refuse_and_close(const HttpRefusal& refusal);
  asio::awaitable<bool> send(std::string_view bytes);

  HttpFrame frame_for(const HttpHead& head) const;
  void hand_over(HttpRequest request);
  std::string bytes_of(HttpExchange::Step& step);

  void watch_client(std::shared_ptr<HttpExchange> exchange);
  void watch_talking_client(std::shared_ptr<HttpExchange> exchange);
  void client_may_have_left();
  void client_left();
  void on_wake();
  void break_off();
  void close();
  void end();

  const HttpLimits& limits() const { return core_.options.limits; }

  HttpCore& core_;
  const std::shared_ptr<TimedSocket> socket_;
  std::string received_;  // bytes that are not part of a request yet
  bool waiting_ = false;  // for the first byte of a request
  bool reading_ = false;  // waits for the rest of one

  // Of the request that is being answered.
  HttpFrame frame_;
  bool may_keep_ = false;   // the connection, after this answer
  bool answering_ = false;  // some of an answer may have left
  std::shared_ptr<HttpExchange> exchange_;
  asio::steady_timer wake_{core_.io};  // cancelled when the exchange has something new
  asio::steady_timer look_{core_.io};
  bool streaming_ = false;
  Clock::time_point last_sent_;
  bool left_ = false;
};

}  // namespace espalier
