// What the connections of a server share, and where they come from: listeners, places, the I/O thread's loop. Seen by
// the server and its connections alone.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "serve/http/http_admission.h"
#include "serve/http/http_server.h"
#include "serve/http/request_ids.h"
#include "serve/http/timed_socket.h"

namespace espalier {

class HttpConnection;

// Lives on the I/O thread, except for what stands under the mutex.
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

  HttpOptions options;
  HttpApplication application;
  const HttpAdmission admission{options, application};
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

}  // namespace espalier
