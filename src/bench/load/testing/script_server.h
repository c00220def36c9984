// A server for tests of clients: it reads a request, writes the bytes it is told to, whatever they are, and closes the
// connection. One connection after another, on a port that the system chooses.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/load/server_url.h"

namespace espalier {

class ScriptServer {
 public:
  // From a request, head and body, to the bytes of the response. "": nothing is written, and the connection is kept.
  using Script = std::function<std::string(const std::string& request)>;

  enum class After { close, keep };

  explicit ScriptServer(Script script, After after = After::close);
  ~ScriptServer();
  ScriptServer(const ScriptServer&) = delete;
  ScriptServer& operator=(const ScriptServer&) = delete;

  ServerUrl url() const { return {.host = "127.0.0.1", .port = port_}; }
  int requests() const { return requests_; }

 private:
  void serve();

  Script script_;
  After after_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopped_{false};
  std::atomic<int> requests_{0};
  std::vector<int> kept_;  // of the thread
  std::thread thread_;
};

// A response with this body, its length told.
std::string response_of(int status, std::string_view body, std::string_view type = "application/json");
// A chunked stream of events, [DONE] at its end: an answer of so many tokens.
std::string answer_stream(int tokens);
std::string models_response();

}  // namespace espalier
