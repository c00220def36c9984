// An HTTP/1.1 client for many requests at once: each has a connection of its own, answers are told piece by piece, with
// the moment at which each piece came. Knows no JSON and no events. Everything happens on the thread that calls run().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/load/server_url.h"

namespace espalier {

using LoadClock = std::chrono::steady_clock;

struct HttpCall {
  std::string method = "POST";
  std::string target = {};  // behind the server's prefix: "/v1/models"
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// What becomes of a call. on_end comes last, once, and never from within call(); it may make other calls.
struct HttpCallEvents {
  std::function<void(int status)> on_head = {};
  std::function<void(std::string_view bytes, LoadClock::time_point when)> on_body = {};
  std::function<void(const std::string& problem)> on_end = {};  // "": the response was complete
};

// The problem of calls that were ended by break_off(), or because run() was cancelled.
inline constexpr std::string_view kBrokenOff = "broken off";

class HttpClient {
 public:
  // A server that is silent for so long has failed.
  explicit HttpClient(std::chrono::milliseconds patience);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void call(const ServerUrl& server, HttpCall call, HttpCallEvents events);
  // Calls `action` at that time, unless everything is broken off before.
  void at(LoadClock::time_point time, std::function<void()> action);
  // All calls end now, and nothing that was planned happens.
  void break_off();
  // Until nothing is under way or planned: true. False: `cancelled` said so, and everything was broken off.
  bool run(const std::function<bool()>& cancelled);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace espalier
