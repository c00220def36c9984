#include "serve/http/http_server.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <variant>

#include "base/error.h"
#include "serve/http/client_socket.h"
#include "serve/http/listening_socket.h"
#include "serve/http/request_head.h"
#include "serve/http/request_ids.h"
#include "serve/http/request_rules.h"
#include "serve/http/response_bytes.h"

namespace espalier {

class HttpConnection;

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using ServerClock = std::chrono::steady_clock;
using Incoming = std::variant<std::monostate, HttpHead, HttpRefusal>;

constexpr std::string_view kErrorType = "application/json";
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr std::size_t kReadBodyBytes = std::size_t{64} << 10;

// The result of an operation goes to `error` instead of an exception: a client that is gone is nothing exceptional.
auto awaiting(error_code& error) {
  return asio::redirect_error(asio::use_awaitable, error);
}

}  // namespace

// What the connections share. Lives on the I/O thread, except for what stands under the mutex.
class HttpCore {
 public:
  explicit HttpCore(HttpOptions given);

  void run();
  void start_accepting();
  void drain();
  void abort();

  // A connection is there from add() to remove().
  void add(HttpConnection& connection);
  void remove(HttpConnection& connection);
  // Whoever waits to be accepted may find a place now.
  void offer_room() { room_.cancel(); }

  HttpResponse response_to(const HttpRefusal& refusal) const;

  HttpOptions options;
  HttpApplication application;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  RequestIds ids;
  std::list<HttpConnection*> idle;  // kept ones that wait for a request, the longest first: they give way to new ones
  bool draining = false;
  std::vector<std::string> urls;
  int port = 0;

  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;  // nothing is accepted any more
  int count = 0;        // of connections

 private:
  struct Listener {
    tcp::acceptor acceptor;
    tcp protocol;
  };

  void keep_accepting(Listener& listener);
  asio::awaitable<void> accept_from(Listener& listener);
  void accept_one(int descriptor, const tcp& protocol);
  bool is_full() const { return static_cast<int>(connections_.size()) >= options.limits.connections; }
  void close_longest_idle();
  void close_listeners();

  std::vector<Listener> listeners_;
  std::unordered_set<HttpConnection*> connections_;
  asio::steady_timer room_{io, asio::steady_timer::time_point::max()};  // cancelled when a connection could be accepted
};

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

// One client's connection: a coroutine that reads a request, waits until it was answered, and reads the next. Lives on
// the I/O thread, as long as the coroutine or an operation of its own holds it.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpCore& core, tcp::socket socket) : core_(core), socket_(std::move(socket)) {}

  void start();
  void close_if_waiting();
  void stop_reading();
  void abort();

 private:
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
  asio::awaitable<bool> receive();
  asio::awaitable<bool> send(std::string_view bytes);
  asio::awaitable<void> linger();

  HttpFrame frame_for(const HttpHead& head) const;
  std::optional<HttpResponse> answer_at_once(HttpHead& head) const;
  std::optional<HttpRefusal> refuse(HttpHead& head) const;
  void hand_over(HttpRequest request);
  std::string bytes_of(HttpExchange::Step& step);

  void watch_client(std::shared_ptr<HttpExchange> exchange);
  void watch_talking_client(std::shared_ptr<HttpExchange> exchange);
  void client_may_have_left();
  void client_left();
  void on_wake();
  void set_deadline(HttpLimits::Time time);
  void clear_deadline();
  void break_off();
  void close();
  void end();

  const HttpLimits& limits() const { return core_.options.limits; }

  HttpCore& core_;
  tcp::socket socket_;
  std::string received_;  // bytes that are not part of a request yet
  bool waiting_ = false;  // for the first byte of a request
  bool reading_ = false;  // waits for the rest of one

  asio::steady_timer deadline_{core_.io};
  bool timed_out_ = false;

  // Of the request that is being answered.
  HttpFrame frame_;
  bool may_keep_ = false;   // the connection, after this answer
  bool answering_ = false;  // some of an answer may have left
  std::shared_ptr<HttpExchange> exchange_;
  asio::steady_timer wake_{core_.io};  // cancelled when the exchange has something new
  asio::steady_timer look_{core_.io};
  bool streaming_ = false;
  ServerClock::time_point last_sent_;
  bool left_ = false;
};

// ---- Core ----------------------------------------------------------------------------------------------------------

HttpCore::HttpCore(HttpOptions given) : options(std::move(given)) {
  check(options.limits.connections > 0, "an HTTP server for {} connections", options.limits.connections);
  std::vector<ListeningSocket> sockets = listen_on(options.host, options.port);
  port = sockets.front().port();
  options.browsers.loopback = std::ranges::all_of(sockets, &ListeningSocket::loopback);
  for (ListeningSocket& socket : sockets) {
    urls.push_back(fmt::format("http://{}:{}", socket.address(), port));
    const tcp protocol = socket.ipv6() ? tcp::v6() : tcp::v4();
    listeners_.push_back({tcp::acceptor(io), protocol});
    listeners_.back().acceptor.assign(protocol, socket.release());
  }
}

// Nothing that goes wrong with one connection may end the thread that serves all.
void HttpCore::run() {
  while (true) {
    try {
      io.run();
      return;
    } catch (...) {  // what it concerned has been closed, or times out
    }
  }
}

void HttpCore::start_accepting() {
  for (Listener& listener : listeners_) keep_accepting(listener);
}

void HttpCore::keep_accepting(Listener& listener) {
  asio::co_spawn(io, accept_from(listener), [this, &listener](const std::exception_ptr& failure) {
    if (failure) keep_accepting(listener);
  });
}

asio::awaitable<void> HttpCore::accept_from(Listener& listener) {
  error_code error;
  asio::steady_timer pause(io);
  while (true) {
    co_await listener.acceptor.async_wait(tcp::acceptor::wait_read, awaiting(error));
    if (!listener.acceptor.is_open()) co_return;
    if (is_full()) {
      close_longest_idle();
      co_await room_.async_wait(awaiting(error));
      continue;
    }
    const int descriptor = accept_client(listener.acceptor.native_handle());
    if (descriptor >= 0) {
      accept_one(descriptor, listener.protocol);
    } else if (!concerns_one_client(errno)) {
      pause.expires_after(options.limits.accept_pause);
      co_await pause.async_wait(awaiting(error));
    }
  }
}

void HttpCore::accept_one(int descriptor, const tcp& protocol) {
  set_client_options(descriptor, options.limits);
  tcp::socket socket(io);
  error_code error;
  socket.assign(protocol, descriptor, error);
  if (error) {
    ::close(descriptor);
    return;
  }
  std::make_shared<HttpConnection>(*this, std::move(socket))->start();
}

void HttpCore::close_longest_idle() {
  if (!idle.empty()) idle.front()->close_if_waiting();
}

void HttpCore::add(HttpConnection& connection) {
  connections_.insert(&connection);
  const std::lock_guard lock(mutex);
  ++count;
}

void HttpCore::remove(HttpConnection& connection) {
  connections_.erase(&connection);
  offer_room();
  const std::lock_guard lock(mutex);
  --count;
  changed.notify_all();
}

HttpResponse HttpCore::response_to(const HttpRefusal& refusal) const {
  check_answer(refusal.status, kErrorType, refusal.headers);
  if (application.on_refused) application.on_refused(refusal.status);
  return {.status = refusal.status,
          .content_type = std::string(kErrorType),
          .headers = refusal.headers,
          .body = application.error_body(refusal)};
}

void HttpCore::close_listeners() {
  error_code ignored;
  for (Listener& listener : listeners_) listener.acceptor.close(ignored);
  room_.cancel();
  const std::lock_guard lock(mutex);
  closed = true;
  changed.notify_all();
}

// Connections are removed later, by their own coroutines: none leaves the list while it is walked.
void HttpCore::drain() {
  draining = true;
  close_listeners();
  for (HttpConnection* connection : connections_) connection->stop_reading();
}

void HttpCore::abort() {
  draining = true;
  close_listeners();
  for (HttpConnection* connection : connections_) connection->abort();
}

// ---- A connection's life -------------------------------------------------------------------------------------------

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
  if (!left_) co_await linger();
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
  if (answering_ || !socket_.is_open()) {
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
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  wake_.cancel();
  look_.cancel();
}

// So that the client cannot take what it has got for the whole: it sees a reset instead of an end.
void HttpConnection::break_off() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  left_ = true;
  close();
}

void HttpConnection::close_if_waiting() {
  if (waiting_) close();
}

// Nobody answers what is not whole by now, so its client need not go on sending.
void HttpConnection::stop_reading() {
  close_if_waiting();
  error_code ignored;
  if (reading_) socket_.cancel(ignored);
}

void HttpConnection::abort() {
  if (exchange_) {
    client_left();
  } else {
    left_ = true;
    close();
  }
}

// The phase that begins now has to end in this time; else what the socket waits for ends with an error.
void HttpConnection::set_deadline(HttpLimits::Time time) {
  timed_out_ = false;
  deadline_.expires_after(time);
  deadline_.async_wait([self = shared_from_this()](const error_code& error) {
    // A time that was changed when this call was already on its way.
    if (error || self->deadline_.expiry() > ServerClock::now()) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

// Not cancel(): a call that is already on its way would still find its time come.
void HttpConnection::clear_deadline() {
  deadline_.expires_at(ServerClock::time_point::max());
}

asio::awaitable<bool> HttpConnection::receive() {
  if (timed_out_) co_return false;
  const std::size_t size = received_.size();
  received_.resize(size + kReadBytes);
  error_code error;
  const std::size_t count =
      co_await socket_.async_read_some(asio::buffer(received_.data() + size, kReadBytes), awaiting(error));
  received_.resize(size + count);
  co_return !error;
}

asio::awaitable<bool> HttpConnection::send(std::string_view bytes) {
  error_code error;
  while (!bytes.empty()) {
    const int before = unacknowledged_bytes(socket_.native_handle());
    set_deadline(limits().write_time);
    const std::size_t count =
        co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()), awaiting(error));
    const bool slow = error && timed_out_ && unacknowledged_bytes(socket_.native_handle()) < before;
    if (error && !slow) co_return false;
    bytes.remove_prefix(count);
    if (exchange_) exchange_->set_in_flight(bytes.size());
  }
  clear_deadline();
  last_sent_ = ServerClock::now();
  co_return true;
}

// Closing while the client still sends would make the system reset the connection, and the client lose the answer.
asio::awaitable<void> HttpConnection::linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  if (error) co_return;
  set_deadline(limits().linger_time);
  while (co_await receive()) received_.clear();
}

// ---- Requests ------------------------------------------------------------------------------------------------------

// False: none came. Blank lines before it are no beginning.
asio::awaitable<bool> HttpConnection::wait_for_request(bool first) {
  received_.erase(0, blank_lines(received_));
  if (core_.draining && received_.empty()) co_return false;
  set_deadline(first ? limits().header_time : limits().idle_time);
  waiting_ = true;
  std::optional<IdlePlace> place;
  if (!first) place.emplace(core_, *this);
  bool open = true;
  while (open && (received_.empty() || received_ == "\r")) {
    open = co_await receive();
    received_.erase(0, blank_lines(received_));
  }
  waiting_ = false;
  co_return open;
}

// Nothing: the client has left, or was silent for too long.
asio::awaitable<Incoming> HttpConnection::read_head(bool first) {
  const bool begun = co_await wait_for_request(first);
  if (!begun) co_return std::monostate();
  if (!first) set_deadline(limits().header_time);
  HeadReader reader(limits().header_bytes);
  while (true) {
    Incoming incoming = reader.read(received_);
    if (std::holds_alternative<HttpHead>(incoming)) received_.erase(0, reader.size());
    if (!std::holds_alternative<std::monostate>(incoming)) co_return incoming;
    if (core_.draining) co_return shutting_down();
    reading_ = true;
    const bool more = co_await receive();
    reading_ = false;
    if (more || core_.draining) continue;
    if (timed_out_) co_return too_slow("the headers");
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
  if (const std::optional<HttpResponse> response = answer_at_once(head)) {
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

// The order matters: without a key nobody learns which paths there are.
std::optional<HttpRefusal> HttpConnection::refuse(HttpHead& head) const {
  const HttpApplication& application = core_.application;
  if (!core_.options.keys.empty()) {
    head.key = core_.options.keys.find(head).value_or(-1);
    if (head.key < 0 && !(application.is_public && application.is_public(head))) return no_key();
  }
  if (application.admit)
    if (auto refusal = application.admit(head)) return refusal;
  return refuse_body(head, limits());
}

// What is answered before the body is read.
std::optional<HttpResponse> HttpConnection::answer_at_once(HttpHead& head) const {
  try {
    const BrowserRules& browsers = core_.options.browsers;
    std::optional<HttpRefusal> refusal = refuse_framing(head);
    if (!refusal) refusal = refuse_browser(head, browsers);
    if (!refusal && head.method == "OPTIONS") return answer_options(head, browsers);
    if (!refusal) refusal = refuse(head);
    return refusal ? std::optional(core_.response_to(*refusal)) : std::nullopt;
  } catch (...) {
    return core_.response_to(no_answer(head.id));
  }
}

// Nothing: it was read, or the client has left. Grows with what arrives, never with what was announced.
asio::awaitable<std::optional<HttpRefusal>> HttpConnection::read_body(std::size_t length, std::string& body) {
  set_deadline(limits().body_time);
  body = received_.substr(0, length);
  received_.erase(0, body.size());
  error_code error;
  while (body.size() < length) {
    if (core_.draining) co_return shutting_down();
    const std::size_t size = body.size();
    body.resize(std::min(length, size + kReadBodyBytes));
    reading_ = true;
    const std::size_t count =
        co_await socket_.async_read_some(asio::buffer(body.data() + size, body.size() - size), awaiting(error));
    reading_ = false;
    body.resize(size + count);
    if (core_.draining || (!error && !timed_out_)) continue;
    if (timed_out_) co_return too_slow("the body");
    left_ = true;
    co_return std::nullopt;
  }
  clear_deadline();
  co_return std::nullopt;
}

// ---- Answers -------------------------------------------------------------------------------------------------------

asio::awaitable<bool> HttpConnection::send_whole(const HttpResponse& response) {
  frame_.keep_alive = may_keep_ && !core_.draining;
  const std::string bytes = whole_answer(response, frame_);
  answering_ = true;
  co_return co_await send(bytes);
}

asio::awaitable<void> HttpConnection::refuse_and_close(const HttpRefusal& refusal) {
  may_keep_ = false;
  const HttpResponse response = core_.response_to(refusal);
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
  error_code ignored;
  socket_.cancel(ignored);  // nobody watches any more
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
  if (step.abandoned) step.whole = core_.response_to(no_answer(frame_.id));
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
  wake_.expires_at((streaming_ ? last_sent_ : ServerClock::now()) + limits().silence_time);
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
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), exchange](const error_code& error) {
    if (self->exchange_ != exchange || !self->socket_.is_open()) return;
    if (error == asio::error::operation_aborted) self->watch_client(exchange);  // by a deadline that concerned others
    if (error) return;
    switch (look_at_client(self->socket_.native_handle())) {
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
    if (look_at_client(self->socket_.native_handle()) == ClientState::gone) {
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

// ---- Server --------------------------------------------------------------------------------------------------------

class HttpServer::State {
 public:
  explicit State(HttpOptions options) : core(std::move(options)) {}

  HttpCore core;
  std::thread thread;
};

HttpServer::HttpServer(HttpOptions options) : state_(std::make_unique<State>(std::move(options))) {}

HttpServer::~HttpServer() {
  abort();
  HttpCore& core = state_->core;
  asio::post(core.io, [&core] { core.work.reset(); });
  if (state_->thread.joinable()) state_->thread.join();
}

void HttpServer::start(HttpApplication application) {
  check(!state_->thread.joinable(), "HttpServer::start called twice");
  check(application.handle && application.error_body, "HttpServer::start without handle or error_body");
  HttpCore& core = state_->core;
  core.application = std::move(application);
  core.start_accepting();
  state_->thread = std::thread([&core] { core.run(); });
}

int HttpServer::port() const {
  return state_->core.port;
}
bool HttpServer::is_loopback() const {
  return state_->core.options.browsers.loopback;
}
std::vector<std::string> HttpServer::urls() const {
  return state_->core.urls;
}

void HttpServer::drain() {
  HttpCore& core = state_->core;
  asio::post(core.io, [&core] { core.drain(); });
}

void HttpServer::abort() {
  HttpCore& core = state_->core;
  asio::post(core.io, [&core] { core.abort(); });
}

bool HttpServer::wait_until_quiet(std::chrono::milliseconds time) {
  HttpCore& core = state_->core;
  std::unique_lock lock(core.mutex);
  return core.changed.wait_for(lock, time, [&core] { return core.closed && core.count == 0; });
}

int HttpServer::connections() const {
  HttpCore& core = state_->core;
  const std::lock_guard lock(core.mutex);
  return core.count;
}

}  // namespace espalier
