#include "serve/http/http_connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <list>
#include <utility>

#include "serve/http/client_socket.h"
#include "serve/http/request_head.h"
#include "serve/http/request_rules.h"

namespace espalier {
namespace {

constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr std::size_t kReadBodyBytes = std::size_t{64} << 10;

// A place among the idle ones, for a while.
class IdlePlace {
 public:
  IdlePlace(HttpCore& core, HttpConnection& connection)
      : idle_(core.idle), place_(core.idle.insert(core.idle.end(), &connection)) {
    core.offer_room();
  }
  ~IdlePlace() { idle_.erase(place_); }
  IdlePlace(const IdlePlace&) = delete;
  IdlePlace& operator=(const IdlePlace&) = delete;

 private:
  std::list<HttpConnection*>& idle_;
  std::list<HttpConnection*>::iterator place_;
};

}  // namespace

// ---- Life ----------------------------------------------------------------------------------------------------------

void HttpConnection::start() {
  core_.add(*this);
  try {
    asio::co_spawn(core_.io, serve(), [self = shared_from_this()](const std::exception_ptr&) { self->end(); });
  } catch (...) {
    core_.remove(*this);
    throw;
  }
}

asio::awaitable<void> HttpConnection::serve() {
  bool more = true;
  for (int number = 1; more; ++number) {
    bool failed = false;
    try {
      more = co_await serve_next(number == 1, number >= limits().requests);
    } catch (...) {
      failed = true;
      more = false;
    }
    if (failed) co_await apologise();
  }
  if (!left_) co_await socket_->linger(limits().linger_time);
}

// True: another request may follow.
asio::awaitable<bool> HttpConnection::serve_next(bool first, bool last) {
  frame_ = {};
  answering_ = false;
  Incoming incoming = co_await read_head(first);
  if (std::holds_alternative<std::monostate>(incoming)) {
    left_ = true;
    co_return false;
  }
  if (auto* head = std::get_if<HttpHead>(&incoming)) co_return co_await serve_request(std::move(*head), last);
  frame_.id = core_.ids.next();
  co_await refuse_and_close(std::get<HttpRefusal>(incoming));
  co_return false;
}

// The fault was ours, in the middle of a request. Who has heard nothing yet is told, who has is left.
asio::awaitable<void> HttpConnection::apologise() {
  if (exchange_) {
    exchange_->client_left();
    exchange_->detach();
    exchange_.reset();
  }
  if (answering_ || !socket_->is_open()) {
    break_off();
    co_return;
  }
  if (frame_.id.empty()) frame_.id = core_.ids.next();
  co_await refuse_and_close(no_answer(frame_.id));
}

// Whatever the application or the memory did, the connection ends in order.
void HttpConnection::end() {
  if (exchange_) {
    client_left();
    exchange_->detach();
  }
  close();
  core_.remove(*this);
}

void HttpConnection::close() {
  socket_->close();
  wake_.cancel();
  look_.cancel();
}

void HttpConnection::break_off() {
  left_ = true;
  socket_->reset();
  close();
}

void HttpConnection::close_if_waiting() {
  if (waiting_) close();
}

// Nobody answers what is not whole by now, so its client need not go on sending.
void HttpConnection::stop_reading() {
  close_if_waiting();
  if (reading_) socket_->cancel();
}

void HttpConnection::abort() {
  if (exchange_) {
    client_left();
  } else {
    left_ = true;
    close();
  }
}

// ---- Requests ------------------------------------------------------------------------------------------------------

// False: none came. Blank lines before it are no beginning.
asio::awaitable<bool> HttpConnection::wait_for_request(bool first) {
  received_.erase(0, blank_lines(received_));
  if (core_.draining && received_.empty()) co_return false;
  socket_->set_deadline(first ? limits().header_time : limits().idle_time);
  waiting_ = true;
  std::optional<IdlePlace> place;
  if (!first) place.emplace(core_, *this);
  bool open = true;
  while (open && (received_.empty() || received_ == "\r")) {
    open = co_await socket_->receive(received_, kReadBytes);
    received_.erase(0, blank_lines(received_));
  }
  waiting_ = false;
  co_return open;
}

// Nothing: the client has left, or was silent for too long.
asio::awaitable<HttpConnection::Incoming> HttpConnection::read_head(bool first) {
  const bool begun = co_await wait_for_request(first);
  if (!begun) co_return std::monostate();
  if (!first) socket_->set_deadline(limits().header_time);
  HeadReader reader(limits().header_bytes);
  while (true) {
    Incoming incoming = reader.read(received_);
    if (std::holds_alternative<HttpHead>(incoming)) received_.erase(0, reader.size());
    if (!std::holds_alternative<std::monostate>(incoming)) co_return incoming;
    if (core_.draining) co_return shutting_down();
    reading_ = true;
    const bool more = co_await socket_->receive(received_, kReadBytes);
    reading_ = false;
    if (more || core_.draining) continue;
    if (socket_->timed_out()) co_return too_slow("the headers");
    co_return std::monostate();
  }
}

// True: another request may follow.
asio::awaitable<bool> HttpConnection::serve_request(HttpHead head, bool last) {
  head.id = core_.ids.next();
  head.bodiless = head.method == "HEAD";
  if (head.bodiless) head.method = "GET";
  frame_ = frame_for(head);
  const bool framed = !refuse_framing(head);
  const std::size_t length = framed ? body_length(head) : 0;
  may_keep_ = framed && !last && wants_keep_alive(head);
  if (const std::optional<HttpResponse> response = core_.admission.answer_at_once(head)) {
    may_keep_ = may_keep_ && length == 0;  // what was not read stands in the way of the next request
    const bool sent = co_await send_whole(*response);
    co_return sent ? frame_.keep_alive : false;
  }
  if (expects_continue(head) && received_.size() < length) {
    const bool told = co_await send(kContinue);
    if (!told) co_return false;
  }
  HttpRequest request{std::move(head), {}};
  const std::optional<HttpRefusal> refusal = co_await read_body(length, request.body);
  if (left_) co_return false;
  if (refusal) {
    co_await refuse_and_close(*refusal);
    co_return false;
  }
  co_return co_await exchange_for(std::move(request));
}

HttpFrame HttpConnection::frame_for(const HttpHead& head) const {
  return {.minor_version = head.minor_version,
          .bodiless = head.bodiless,
          .id = head.id,
          .cors = cors_headers(head, core_.options.browsers)};
}

// Nothing: it was read, or the client has left. Grows with what arrives, never with what was announced.
asio::awaitable<std::optional<HttpRefusal>> HttpConnection::read_body(std::size_t length, std::string& body) {
  socket_->set_deadline(limits().body_time);
  body = received_.substr(0, length);
  received_.erase(0, body.size());
  while (body.size() < length) {
    if (core_.draining) co_return shutting_down();
    reading_ = true;
    const bool more = co_await socket_->receive(body, std::min(length - body.size(), kReadBodyBytes));
    reading_ = false;
    if (core_.draining || (more && !socket_->timed_out())) continue;
    if (socket_->timed_out()) co_return too_slow("the body");
    left_ = true;
    co_return std::nullopt;
  }
  socket_->clear_deadline();
  co_return std::nullopt;
}

// ---- Answers -------------------------------------------------------------------------------------------------------

asio::awaitable<bool> HttpConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::optional<std::size_t> sent = co_await socket_->send_some(bytes, limits().write_time);
    if (!sent) co_return false;
    bytes.remove_prefix(*sent);
    if (exchange_) exchange_->set_in_flight(bytes.size());
  }
  socket_->clear_deadline();
  last_sent_ = Clock::now();
  co_return true;
}

asio::awaitable<bool> HttpConnection::send_whole(const HttpResponse& response) {
  frame_.keep_alive = may_keep_ && !core_.draining;
  const std::string bytes = whole_answer(response, frame_);
  answering_ = true;
  co_return co_await send(bytes);
}

asio::awaitable<void> HttpConnection::refuse_and_close(const HttpRefusal& refusal) {
  may_keep_ = false;
  const HttpResponse response = core_.admission.response_to(refusal);
  co_await send_whole(response);
}

// True: it was answered and another request may follow.
asio::awaitable<bool> HttpConnection::exchange_for(HttpRequest request) {
  exchange_ = std::make_shared<HttpExchange>(limits().outbox_bytes, [&io = core_.io, connection = weak_from_this()] {
    asio::post(io, [connection] {
      if (const auto self = connection.lock()) self->on_wake();
    });
  });
  streaming_ = false;
  watch_client(exchange_);
  hand_over(std::move(request));
  const bool sent = co_await send_answer(exchange_);
  if (!sent && !left_) client_left();
  exchange_->detach();
  exchange_.reset();
  socket_->cancel();  // nobody watches any more
  look_.cancel();
  co_return sent ? frame_.keep_alive : false;
}

void HttpConnection::hand_over(HttpRequest request) {
  try {
    core_.application.handle(std::move(request), std::make_shared<HttpReply>(exchange_));
  } catch (...) {
    exchange_->abandon();
  }
}

// False: the client is gone, or was left in the middle.
asio::awaitable<bool> HttpConnection::send_answer(std::shared_ptr<HttpExchange> exchange) {
  while (!left_) {
    HttpExchange::Step step = exchange->take();
    if (step.abandoned && streaming_) {
      break_off();
      co_return false;
    }
    const std::string bytes = bytes_of(step);
    answering_ = answering_ || !bytes.empty();
    const bool sent = co_await send(bytes);
    if (!sent) co_return false;
    if (step.last || step.abandoned) co_return true;
    if (!bytes.empty()) continue;
    const bool listening = co_await wait_for_news();
    if (!listening) co_return false;
  }
  co_return false;
}

std::string HttpConnection::bytes_of(HttpExchange::Step& step) {
  if (step.abandoned) step.whole = core_.admission.response_to(no_answer(frame_.id));
  if (step.whole || step.begun) frame_.keep_alive = may_keep_ && !core_.draining;
  if (step.whole) return whole_answer(*step.whole, frame_);
  std::string bytes;
  if (step.begun) {
    streaming_ = true;
    frame_.keep_alive = frame_.keep_alive && frame_.chunked();
    bytes = event_stream_head(*step.begun, frame_);
  }
  bytes += stream_piece(step.bytes, frame_);
  if (step.last) bytes += stream_end(frame_);
  return bytes;
}

// Waits for the application, in a stream not longer than proxies and clients can bear; and looks by itself after a
// while, since a wake that found no memory did not come. False: the client is gone.
asio::awaitable<bool> HttpConnection::wait_for_news() {
  error_code cancelled;
  wake_.expires_at((streaming_ ? last_sent_ : Clock::now()) + limits().silence_time);
  co_await wake_.async_wait(awaiting(cancelled));
  if (cancelled || !streaming_) co_return true;
  const std::string comment = stream_piece(kEventComment, frame_);
  co_return co_await send(comment);
}

void HttpConnection::on_wake() {
  if (exchange_ && exchange_->overflowed()) client_left();
  wake_.cancel();
}

// ---- Clients that leave --------------------------------------------------------------------------------------------

void HttpConnection::watch_client(std::shared_ptr<HttpExchange> exchange) {
  socket_->wait_readable([self = shared_from_this(), exchange](const error_code& error) {
    if (self->exchange_ != exchange || !self->socket_->is_open()) return;
    if (error == asio::error::operation_aborted) self->watch_client(exchange);  // by a deadline that concerned others
    if (error) return;
    switch (look_at_client(self->socket_->descriptor())) {
      case ClientState::silent: self->watch_client(exchange); break;
      case ClientState::talking: self->watch_talking_client(exchange); break;
      case ClientState::gone: self->client_may_have_left(); break;
    }
  });
}

// The socket stays readable until the next request is read, so waiting for that would tell nothing.
void HttpConnection::watch_talking_client(std::shared_ptr<HttpExchange> exchange) {
  look_.expires_after(limits().look_time);
  look_.async_wait([self = shared_from_this(), exchange](const error_code& error) {
    if (error || self->exchange_ != exchange) return;
    if (look_at_client(self->socket_->descriptor()) == ClientState::gone) {
      self->client_may_have_left();
    } else {
      self->watch_talking_client(exchange);
    }
  });
}

// Whoever closes only the sending side after the last request may still read an answer that is there already.
void HttpConnection::client_may_have_left() {
  if (!exchange_->complete()) client_left();
}

void HttpConnection::client_left() {
  left_ = true;
  const std::shared_ptr<HttpExchange> exchange = exchange_;
  close();
  exchange->client_left();
}

}  // namespace espalier
