// A service on a tiny model, for tests: a device that can be told to fail, a batch of a chosen size, requests in a
// line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/conformance/faulty_device.h"
#include "serve/answer_service.h"
#include "serve/testing/heard_answer.h"

namespace espalier {

struct TinyEngineOptions {
  int parallel = 2;
  std::int64_t context = 256;
  std::int64_t cache_positions = 0;  // 0: what `parallel` contexts need
};

class TinyEngine final : public ServedEngine {
 public:
  explicit TinyEngine(const TinyEngineOptions& options);

  Batch& batch() override { return batch_; }
  FaultyDevice& device() override { return device_; }
  const ModelText& text() const override { return text_; }
  int parallel() const override { return parallel_; }
  std::string keep_failure(const AnswerFailure& failure, const std::string& id) override;

 private:
  int parallel_;
  FaultyDevice device_;
  ModelText text_;
  Transformer model_;
  Batch batch_;
};

// The same every time: so many tokens behind a prompt of its own, drawn with the seed.
RequestPlan tiny_plan(std::int64_t max_tokens, int first_token = 5, int n = 1);

class TinyService {
 public:
  explicit TinyService(const TinyEngineOptions& engine = {}, const ServiceOptions& options = {});

  // Throws what AnswerService::submit() does. arrived: as if it had come then.
  AnswerService::Ticket submit(RequestPlan plan, std::shared_ptr<HeardAnswer> heard, int key = 0,
                               ServiceClock::time_point arrived = ServiceClock::now());
  // One request, answered.
  EndedChoice answer(RequestPlan plan);
  // Ends, and says whether all was well.
  bool drain(std::chrono::milliseconds time = std::chrono::seconds(10));

  AnswerService& service() { return *service_; }
  TinyEngine& engine() { return *engine_; }  // only while the engine thread is held, or idle
  Metrics& metrics() { return metrics_; }
  std::vector<std::string> remarks() const;
  std::exception_ptr failure() const;

 private:
  Metrics metrics_;
  TinyEngine* engine_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
  std::vector<std::string> remarks_;
  std::exception_ptr failure_;
  std::unique_ptr<AnswerService> service_;
};

// A gate at which the engine thread can be held. Nobody waits there for ever: a test that goes wrong ends.
class Gate {
 public:
  void open();
  void wait();          // until it is open; the engine thread's
  void wait_reached();  // until the engine thread is there; throws DeviceError where it does not come

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

}  // namespace espalier
