// A whole server: it listens at once, opens its model on the engine thread, answers, and ends in good order.
//
//   Server server(options, listener, events);      // listens; /health says that it is loading
//   ... events.on_ready ...
//   server.drain(30s);                              // no new requests; running ones may end
//   ... events.on_ended ...
//   return server.finish() ? 0 : 1;                 // the last bytes leave
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/listener.h"
#include "serve/answer_service.h"
#include "serve/application.h"
#include "serve/http/http_server.h"
#include "serve/metrics.h"
#include "serve/served_model.h"
#include "serve/worker_pool.h"

namespace espalier {

struct ServerOptions {
  HttpOptions http = {};
  ServiceOptions service = {};
  ServedModelOptions model = {};
  ApplicationOptions application = {};
  bool no_auth = false;       // also others than this machine's users may come without a key
  bool shared_cache = false;  // among all keys
};

// Called on the engine thread; must not block, nor call the server.
struct ServerEvents {
  std::function<void()> on_ready = {};
  std::function<void(std::exception_ptr)> on_failed = {};
  std::function<void()> on_ended = {};
};

// Thread-safe once it is constructed. The listener hears of the loading from the engine thread.
class Server {
 public:
  // Throws InputError: a host or port that cannot be listened on, or one that others reach without a key.
  Server(ServerOptions options, Listener& listener, ServerEvents events);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // In one line: address, model, parallel, KV positions, drafters, keys. Requires that it is ready.
  std::string start_line() const;
  std::vector<std::string> urls() const { return http_->urls(); }

  // Returns at once. A shorter time later counts.
  void drain(std::chrono::milliseconds time);
  // When the service has ended: gives the last answers what is left of the drain's time to leave, a moment at least,
  // then closes everything. False: somebody was cut off, or something failed.
  bool finish();

 private:
  AnswerService::Open opener(Listener& listener);
  ServiceEvents service_events(Listener& listener, ServerEvents events) const;
  std::chrono::milliseconds time_for_last_bytes() const;

  const ServedModelOptions model_options_;
  const std::size_t keys_;
  Metrics metrics_;
  WorkerPool pool_;
  Application application_;
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;
  std::optional<ServiceClock::time_point> drain_end_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<AnswerService> service_;
};

}  // namespace espalier
