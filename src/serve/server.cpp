#include "serve/server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace espalier {
namespace {

constexpr int kWorkers = 2;
constexpr std::size_t kMostPreparing = 1024;
constexpr std::chrono::milliseconds kLastBytes{3'000};  // for clients to take the end of their answers

ApplicationOptions application_options(const ServerOptions& options) {
  ApplicationOptions result = options.application;
  result.salt_by_key = options.http.keys.size() > 1 && !options.shared_cache;
  result.outbox_bytes = options.http.limits.outbox_bytes;
  return result;
}

void check_keys(const HttpServer& http, const ServerOptions& options) {
  if (options.no_auth && !options.http.keys.empty())
    throw InputError("--no-auth: not with --api-key, --api-key-file or ESPALIER_API_KEY");
  if (http.is_loopback() || !options.http.keys.empty() || options.no_auth) return;
  input_error(
      "--host {}: other machines reach it, expected --api-key-file, ESPALIER_API_KEY or --api-key; --no-auth lets "
      "everybody in",
      options.http.host);
}

}  // namespace

Server::Server(ServerOptions options, Listener& listener, ServerEvents events)
    : model_options_(options.model),
      keys_(options.http.keys.size()),
      pool_(kWorkers, kMostPreparing),
      application_(application_options(options), pool_, metrics_),
      http_(std::make_unique<HttpServer>(options.http)) {
  check_keys(*http_, options);
  service_ = std::make_unique<AnswerService>(options.service, opener(listener), metrics_,
                                             service_events(listener, std::move(events)));
  application_.set_service(*service_);
  application_.set_connections([this] { return http_->connections(); });
  http_->start(application_.http());
}

// Connections first, then those who work for them: the service hears of clients that left until the end.
Server::~Server() {
  http_->abort();
  pool_.stop();
  http_.reset();
  service_.reset();
}

AnswerService::Open Server::opener(Listener& listener) {
  return [this, &listener]() -> std::unique_ptr<ServedEngine> {
    auto model = std::make_shared<ServedModel>(model_options_, &listener);
    auto engine = std::make_unique<ModelEngine>(model);
    application_.set_model(model);
    const std::lock_guard lock(mutex_);
    model_ = std::move(model);
    return engine;
  };
}

ServiceEvents Server::service_events(Listener& listener, ServerEvents events) const {
  return {.on_ready = std::move(events.on_ready),
          .on_failed = std::move(events.on_failed),
          .on_remark = [&listener](std::string_view line) { listener.remark(line); },
          .on_ended = std::move(events.on_ended)};
}

std::string Server::start_line() const {
  const std::lock_guard lock(mutex_);
  const std::string keys = keys_ == 0 ? "no API key" : fmt::format("{} API key{}", keys_, keys_ == 1 ? "" : "s");
  return fmt::format("{} at {}: on {}, {} answers at once, {} KV positions, contexts of {}, drafts by {}, {}",
                     model_->facts().id, fmt::join(urls(), ", "), model_->device_name(), model_->parallel(),
                     model_->kv_positions(), model_->context(), model_->drafters(), keys);
}

void Server::drain(std::chrono::milliseconds time) {
  {
    const std::lock_guard lock(mutex_);
    const auto end = ServiceClock::now() + time;
    drain_end_ = drain_end_ ? std::min(*drain_end_, end) : end;
  }
  service_->drain(time);
  http_->drain();
}

std::chrono::milliseconds Server::time_for_last_bytes() const {
  const std::lock_guard lock(mutex_);
  if (!drain_end_) return kLastBytes;
  return std::max(kLastBytes, std::chrono::ceil<std::chrono::milliseconds>(*drain_end_ - ServiceClock::now()));
}

bool Server::finish() {
  http_->drain();
  pool_.wait_until_idle();
  const bool quiet = http_->wait_until_quiet(time_for_last_bytes());
  http_->abort();
  return service_->all_well() && quiet;
}

}  // namespace espalier
