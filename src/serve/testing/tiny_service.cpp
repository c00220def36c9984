#include "serve/testing/tiny_service.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "engine/testing/tiny_model.h"

namespace espalier {
namespace {

constexpr std::chrono::seconds kPatience{20};

DecoderOptions tiny_decoder(const TinyEngineOptions& options) {
  return {.context = options.context, .parallel = options.parallel, .cache_positions = options.cache_positions};
}

}  // namespace

TinyEngine::TinyEngine(const TinyEngineOptions& options)
    : parallel_(options.parallel),
      device_(make_cpu_device({.threads = 1})),
      text_(load_model_text(kTinyModel)),
      model_(load_transformer(device_, kTinyModel)),
      batch_(model_, tiny_decoder(options)) {}

std::string TinyEngine::keep_failure(const AnswerFailure& failure, const std::string& id) {
  return fmt::format("{} failed in {}", id, name(failure.stage));
}

RequestPlan tiny_plan(std::int64_t max_tokens, int first_token, int n) {
  RequestPlan plan;
  plan.form = {.api = Api::text, .n = n, .stream = true};
  plan.prompts.push_back({.tokens = {1, first_token, 40, 7, first_token + 1, 33}});
  for (int i = 0; i < n; ++i) {
    PlannedChoice choice{.index = i};
    choice.text.ignore_eos = true;
    choice.text.generate.max_tokens = max_tokens;
    choice.text.generate.sampling.temperature = 1;
    choice.text.generate.seed = choice_seed(3, i);
    plan.choices.push_back(choice);
  }
  return plan;
}

TinyService::TinyService(const TinyEngineOptions& engine, const ServiceOptions& options) {
  const auto open = [this, engine]() -> std::unique_ptr<ServedEngine> {
    auto opened = std::make_unique<TinyEngine>(engine);
    engine_ = opened.get();
    return opened;
  };
  const auto change = [this](const auto& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  };
  service_ = std::make_unique<AnswerService>(
      options, open, metrics_,
      ServiceEvents{.on_ready = [=, this] { change([&] { ready_ = true; }); },
                    .on_failed = [=, this](std::exception_ptr failure) { change([&] { failure_ = failure; }); },
                    .on_remark = [=, this](std::string_view line) { change([&] { remarks_.emplace_back(line); }); }});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_ || failure_; });
}

AnswerService::Ticket TinyService::submit(RequestPlan plan, std::shared_ptr<HeardAnswer> heard, int key,
                                          ServiceClock::time_point arrived) {
  return service_->submit(
      {.id = "cmpl-1", .plan = std::move(plan), .key = key, .arrived = arrived, .listener = std::move(heard)});
}

EndedChoice TinyService::answer(RequestPlan plan) {
  const auto heard = std::make_shared<HeardAnswer>(static_cast<int>(plan.choices.size()));
  submit(std::move(plan), heard);
  heard->wait_over();
  return heard->end();
}

bool TinyService::drain(std::chrono::milliseconds time) {
  service_->drain(time);
  return service_->wait_until_ended(std::chrono::seconds(20)) && service_->all_well();
}

std::vector<std::string> TinyService::remarks() const {
  const std::lock_guard lock(mutex_);
  return remarks_;
}

std::exception_ptr TinyService::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Gate::open() {
  const std::lock_guard lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

void Gate::wait() {
  std::unique_lock lock(mutex_);
  reached_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kPatience, [this] { return open_; });
}

void Gate::wait_reached() {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_for(lock, kPatience, [this] { return reached_; });
  if (!came) device_error("the engine thread does not come to the gate");
}

}  // namespace espalier
