// An application for tests of the server, and the server in front of it, on a port that the system chooses:
//   GET  /health      "ok", without a key
//   POST /echo        the body
//   GET  /big?bytes=N  N bytes
//   GET, POST /hold   is kept: the test takes the reply with held() and answers it
//   POST /throw, /drop  an exception; a reply that nobody answers
// Everything else is 404, other methods 405. Error bodies are "STATUS MESSAGE".
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "serve/http/http_server.h"
#include "serve/http/testing/raw_client.h"

namespace espalier {

struct HeldRequest {
  HttpRequest request;
  std::shared_ptr<HttpReply> reply;
};

class FakeSite {
 public:
  explicit FakeSite(HttpOptions options = {});
  ~FakeSite();

  HttpServer& server() { return *server_; }
  void stop() { server_.reset(); }
  RawClient client() const { return RawClient(port_); }
  int port() const { return port_; }
  // One request on a connection of its own.
  RawAnswer ask(std::string_view bytes) const;

  // The next request to /hold. Throws DeviceError where none comes.
  HeldRequest held();
  // How many held requests have been told that their client is gone; waits until there are so many.
  bool gone(int count);
  int handled() const;
  std::vector<int> refused() const;

 private:
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);
  void hold(HttpRequest request, std::shared_ptr<HttpReply> reply);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<HeldRequest> held_;
  int gone_ = 0;
  int handled_ = 0;
  std::vector<int> refused_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
};

// Limits that tests reach in milliseconds, except those that a test is not about.
HttpOptions on_any_port(HttpLimits limits = {});
// Asks again and again, as long as RawClient waits.
bool eventually(const std::function<bool()>& condition);

}  // namespace espalier
