// What stands behind the HTTP server: from a request to the protocol's functions, to the service, and back. Small
// answers that need no engine come at once; all else is prepared by the worker threads.
//
// Called on the I/O thread; nothing here waits for anybody.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "serve/answer_service.h"
#include "serve/http/http_server.h"
#include "serve/metrics.h"
#include "serve/protocol/routes.h"
#include "serve/served_model.h"
#include "serve/worker_pool.h"

namespace espalier {

struct ApplicationOptions {
  bool slots = true;  // /slots, /metrics and / answer
  bool metrics = false;
  bool page = true;
  bool public_metrics = false;  // without a key
  bool salt_by_key = false;     // what one key's requests have computed, other keys' do not find
  std::size_t outbox_bytes = HttpLimits{}.outbox_bytes;  // of a stream, between engine and connection
  std::function<int()> connections = [] { return 0; };
};

class Application {
 public:
  // All must outlive this.
  Application(ApplicationOptions options, WorkerPool& pool, Metrics& metrics);
  Application(const Application&) = delete;
  Application& operator=(const Application&) = delete;

  // Both come before the first request; the model later, from any thread, when it is there.
  void set_service(AnswerService& service) { service_ = &service; }
  void set_connections(std::function<int()> count) { options_.connections = std::move(count); }
  void set_model(std::shared_ptr<const ServedModel> model);

  // The functions for the server; this must outlive it.
  HttpApplication http();

 private:
  using Reply = std::shared_ptr<HttpReply>;
  struct Exchange;

  bool is_public(const HttpHead& head) const;
  std::optional<HttpRefusal> admit(const HttpHead& head) const;
  void handle(HttpRequest request, const Reply& reply);
  void prepare(const std::shared_ptr<Exchange>& exchange, bool answers);
  void answer(Exchange& exchange, const FoundRoute& route);
  HttpResponse respond(const HttpRequest& request, const FoundRoute& route) const;
  HttpResponse respond_about_model(const HttpRequest& request, const FoundRoute& route) const;
  HttpResponse page() const;
  HttpResponse metrics_text() const;
  HttpResponse slots(const HttpRequest& request) const;
  std::string salt_of(const RequestPlan& plan, int key) const;
  void send_error(std::exception_ptr failure, std::string_view id, const Reply& reply) const noexcept;
  std::shared_ptr<const ServedModel> model() const;  // throws ApiError 503 where there is none yet

  ApplicationOptions options_;
  WorkerPool& pool_;
  Metrics& metrics_;
  AnswerService* service_ = nullptr;
  mutable std::mutex mutex_;
  std::shared_ptr<const ServedModel> model_;  // shared with the engine thread and with every answer
};

}  // namespace espalier
