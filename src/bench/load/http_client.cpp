#include "bench/load/http_client.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"

namespace espalier {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Endpoints = std::vector<tcp::endpoint>;

constexpr std::uint32_t kMostHeaderBytes = std::uint32_t{64} << 10;
constexpr std::uint64_t kMostBodyBytes = std::uint64_t{64} << 20;
constexpr auto kLookAround = std::chrono::milliseconds(50);  // for a cancellation

std::string problem_of(const error_code& error, std::chrono::milliseconds patience) {
  if (error == beast::error::timeout)
    return fmt::format("silent for {:g} s", std::chrono::duration<double>(patience).count());
  if (error == asio::error::operation_aborted) return std::string(kBrokenOff);
  if (error == http::error::end_of_stream || error == http::error::partial_message || error == asio::error::eof)
    return "the server closed the connection in the middle";
  if (error.category() == http::make_error_code(http::error::bad_version).category())
    return fmt::format("not HTTP: {}", error.message());
  return error.message();
}

}  // namespace

// One request and its response. Lives as long as an operation of its own.
class HttpCallExchange : public std::enable_shared_from_this<HttpCallExchange> {
 public:
  HttpCallExchange(asio::io_context& io, std::chrono::milliseconds patience, HttpCallEvents events,
                   std::function<void(HttpCallExchange*)> on_gone)
      : stream_(io), patience_(patience), events_(std::move(events)), on_gone_(std::move(on_gone)) {
    parser_.header_limit(kMostHeaderBytes);
    parser_.body_limit(kMostBodyBytes);
  }

  void start(const Endpoints& endpoints, const ServerUrl& server, HttpCall call) {
    request_.version(11);
    request_.method_string(call.method);
    request_.target(server.prefix + call.target);
    request_.set(http::field::host, server.authority());
    request_.set(http::field::connection, "close");
    for (const auto& [name, value] : call.headers) request_.set(name, value);
    request_.body() = std::move(call.body);
    request_.prepare_payload();
    stream_.expires_after(patience_);
    stream_.async_connect(endpoints, [self = shared_from_this()](error_code error, const tcp::endpoint&) {
      if (error || self->broken_off_) return self->end(error);
      self->send();
    });
  }

  void fail(std::string problem) {
    asio::post(stream_.get_executor(),
               [self = shared_from_this(), problem = std::move(problem)] { self->end_with(problem); });
  }

  void break_off() {
    broken_off_ = true;
    stream_.cancel();
  }

 private:
  void send() {
    error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    stream_.expires_after(patience_);
    http::async_write(stream_, request_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error || self->broken_off_) return self->end(error);
      self->read_head();
    });
  }

  void read_head() {
    stream_.expires_after(patience_);
    http::async_read_header(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error || self->broken_off_) return self->end(error);
      self->parser_.eager(false);  // a greedy parser waits for the chunk behind the one that has come
      if (self->events_.on_head) self->events_.on_head(static_cast<int>(self->parser_.get().result_int()));
      self->read_body();
    });
  }

  void read_body() {
    if (parser_.is_done()) return end_with("");
    stream_.expires_after(patience_);
    http::async_read_some(stream_, buffer_, parser_, [self = shared_from_this()](error_code error, std::size_t) {
      self->tell_body(LoadClock::now());
      if (error || self->broken_off_) return self->end(error);
      self->read_body();
    });
  }

  void tell_body(LoadClock::time_point when) {
    const std::string bytes = std::exchange(parser_.get().body(), {});
    if (!bytes.empty() && events_.on_body) events_.on_body(bytes, when);
  }

  void end(const error_code& error) { end_with(broken_off_ ? std::string(kBrokenOff) : problem_of(error, patience_)); }

  void end_with(const std::string& problem) {
    error_code ignored;
    stream_.socket().close(ignored);
    on_gone_(this);
    if (events_.on_end) events_.on_end(problem);
  }

  beast::tcp_stream stream_;
  std::chrono::milliseconds patience_;
  HttpCallEvents events_;
  std::function<void(HttpCallExchange*)> on_gone_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  bool broken_off_ = false;
};

class HttpClient::State {
 public:
  explicit State(std::chrono::milliseconds patience) : patience_(patience) {}

  void call(const ServerUrl& server, HttpCall call, HttpCallEvents events) {
    const auto exchange = std::make_shared<HttpCallExchange>(
        io_, patience_, std::move(events), [this](HttpCallExchange* gone) { exchanges_.erase(gone); });
    exchanges_.insert(exchange.get());
    error_code error;
    const Endpoints& endpoints = addresses_of(server, error);
    if (endpoints.empty()) return exchange->fail(error.message());
    exchange->start(endpoints, server, std::move(call));
  }

  void at(LoadClock::time_point time, std::function<void()> action) {
    const auto timer = std::make_shared<asio::steady_timer>(io_, time);
    timers_.insert(timer);
    timer->async_wait([this, timer, action = std::move(action)](error_code error) {
      timers_.erase(timer);
      if (!error) action();
    });
  }

  void break_off() {
    for (HttpCallExchange* exchange : exchanges_) exchange->break_off();
    for (const auto& timer : timers_) timer->cancel();
  }

  bool run(const std::function<bool()>& cancelled) {
    io_.restart();
    bool whole = true;
    while (!io_.stopped()) {
      io_.run_for(kLookAround);
      if (cancelled && cancelled()) whole = false, break_off();
    }
    return whole;
  }

 private:
  // Names are looked up once, in the place of the first call.
  const Endpoints& addresses_of(const ServerUrl& server, error_code& error) {
    Endpoints& known = addresses_[server.authority()];
    if (!known.empty()) return known;
    const auto results = tcp::resolver(io_).resolve(server.host, std::to_string(server.port), error);
    for (const auto& result : results) known.push_back(result.endpoint());
    return known;
  }

  std::chrono::milliseconds patience_;
  asio::io_context io_{1};
  std::map<std::string, Endpoints> addresses_;
  std::set<HttpCallExchange*> exchanges_;
  std::set<std::shared_ptr<asio::steady_timer>> timers_;
};

HttpClient::HttpClient(std::chrono::milliseconds patience) : state_(std::make_unique<State>(patience)) {}

HttpClient::~HttpClient() = default;

void HttpClient::call(const ServerUrl& server, HttpCall call, HttpCallEvents events) {
  state_->call(server, std::move(call), std::move(events));
}

void HttpClient::at(LoadClock::time_point time, std::function<void()> action) {
  state_->at(time, std::move(action));
}

void HttpClient::break_off() {
  state_->break_off();
}

bool HttpClient::run(const std::function<bool()>& cancelled) {
  return state_->run(cancelled);
}

}  // namespace espalier
