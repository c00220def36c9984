// An HTTP/1.1 server: one I/O thread, connections that wait for nobody. It reads requests within limits, refuses what
// may not come in before it reads a body, hands the rest to the application, and carries answers back, whole or as
// streams of events. It knows no JSON, no models and no tokens.
//
//   HttpServer server({.host = "127.0.0.1", .port = 8080});       // listens; nothing is accepted yet
//   server.start(application);                                     // from now on requests arrive
//   server.drain(); server.wait_until_quiet(30s); server.abort();  // no new ones; time for the running ones; the rest
//
// The life of a request: head (limits, Host and Origin, key, the application's admit), body, handle. While it is
// answered the connection looks out for the client's end: a connection the client has closed, or its sending side
// alone, or that was reset, has nobody who waits, and HttpReply::on_gone is called. (An answer that was complete by
// then is still sent.) The next request of a connection is read when the answer to the one before has left, so that
// answers keep their order.
//
// Thread-safe: every call may come from any thread, except that construction and start() come first.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/http/api_keys.h"
#include "serve/http/browser_rules.h"
#include "serve/http/http_limits.h"
#include "serve/http/http_reply.h"
#include "serve/http/http_types.h"

namespace espalier {

// What stands behind the server. All of it is called on the I/O thread and must return at once; an exception is
// answered with 500.
struct HttpApplication {
  // Paths that need no key. Absent: all need one.
  std::function<bool(const HttpHead&)> is_public{};
  // Refuses what has no route (404, 405 with Allow), before the body is read. Absent: all is admitted.
  std::function<std::optional<HttpRefusal>(const HttpHead&)> admit{};
  // The request with its whole body. Another thread may do the work and answer; the server holds nothing back
  // meanwhile.
  std::function<void(HttpRequest, std::shared_ptr<HttpReply>)> handle{};
  // The JSON of an error.
  std::function<std::string(const HttpRefusal&)> error_body{};
  // Told of each refusal the server itself sends, for counting. Absent: nobody counts.
  std::function<void(int status)> on_refused{};
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, with or without brackets, or a name: then all its addresses
  int port = 8080;                 // 0: the system chooses, port() tells
  HttpLimits limits{};
  ApiKeys keys{};  // none: whoever comes is let in
  BrowserRules browsers{};
};

class HttpServer {
 public:
  // Throws InputError in one line: no such host, port taken or not permitted.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();  // aborts, and waits for the I/O thread
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  bool is_loopback() const;               // nobody but this machine can reach it
  std::vector<std::string> urls() const;  // http://127.0.0.1:8080, one for each address

  // Requires that it was not called before.
  void start(HttpApplication application);

  // The listener and idle connections are closed; a request that is not whole yet is refused with 503; every answer
  // whose head has not left says Connection: close. Returns at once, as does abort().
  void drain();
  // True: it is drained or aborted, and no connection is left. False: after this time there was still one. Not to be
  // called by the application on the I/O thread.
  bool wait_until_quiet(std::chrono::milliseconds time);
  // Closes everything. Replies that are not complete have their on_gone called.
  void abort();

  int connections() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace espalier
