#include "serve/http/http_server.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "serve/http/client_socket.h"
#include "serve/http/http_connection.h"
#include "serve/http/http_core.h"
#include "serve/http/listening_socket.h"

namespace espalier {

// ---- What connections share ----------------------------------------------------------------------------------------

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
