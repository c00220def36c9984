// The application's end of one exchange: the answer to one request, whole or as a stream of events. Every call may come
// from any thread, returns at once and never blocks; calls from several threads take effect one after the other.
//
// Either send(), or begin_events(), write() any number of times and finish(); anything else is a mistake of ours
// (std::logic_error). All of them return false, and do nothing, once the client is gone. A reply that is dropped
// unfinished is finished by the server: with 500 while nothing was sent, else by breaking the connection, so that no
// client takes half an answer for a whole one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "serve/http/http_exchange.h"
#include "serve/http/http_types.h"

namespace espalier {

class HttpReply {
 public:
  explicit HttpReply(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~HttpReply() { exchange_->abandon(); }
  HttpReply(const HttpReply&) = delete;
  HttpReply& operator=(const HttpReply&) = delete;

  // The whole answer.
  bool send(HttpResponse response) { return exchange_->send(std::move(response)); }

  // The head of an event stream, 200, with these headers besides those that belong to it. It leaves at once. While
  // nothing is written the server sends a comment line now and then (HttpLimits::silence_time).
  bool begin_events(std::vector<HttpHeader> headers = {}) { return exchange_->begin_events(std::move(headers)); }
  // Bytes of the stream, whole events. A client that lets HttpLimits::outbox_bytes pile up counts as gone.
  bool write(std::string_view events) { return exchange_->write(events); }
  bool finish() { return exchange_->finish(); }
  // Nobody will: the server answers with 500 in its place, or breaks the stream off. As when the last holder drops it,
  // which whoever owns it by on_gone() never does.
  void abandon() noexcept { exchange_->abandon(); }

  // Called once if the client is gone before the answer was complete: it closed the connection or its side of it, did
  // not take what was written, or the server was aborted. From the I/O thread, or at once from the caller's if it is
  // gone already; never after send() or finish(). Must not block. It is let go of when the answer is complete, so it
  // may own what owns this reply.
  void on_gone(std::function<void()> callback) { exchange_->on_gone(std::move(callback)); }
  bool gone() const { return exchange_->gone(); }

  // Bytes of the stream that the system has not taken yet.
  std::size_t waiting_bytes() const { return exchange_->waiting_bytes(); }

 private:
  std::shared_ptr<HttpExchange> exchange_;
};

}  // namespace espalier
