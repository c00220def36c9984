// The model that a server answers with: engine, drafters, the size of its memory, and what it says of itself. It does
// not change once it is open, so any thread may read it; the batch that is made on it belongs to one.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "decode/pool_size.h"
#include "engine/answering.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/receipt.h"
#include "serve/answer_service.h"
#include "serve/protocol/server_objects.h"

namespace espalier {

struct ServedModelOptions {
  EngineOptions engine = {};
  DraftPlan drafting = {};
  ChatSettings chat = {};        // its system message is told, for pages that send it: the API adds none of its own
  SamplingFields sampling = {};  // of requests that do not say
  std::optional<std::uint64_t> seed = {};
  std::string alias = {};  // the model's name; empty: that of its file
  bool strict_model = false;
  bool priorities = false;
  bool allow_batch_variance = false;
  int parallel = 8;                           // answers at once
  std::optional<std::int64_t> kv_bytes = {};  // nothing: what `parallel` whole contexts need, at most a
                                              // quarter of RAM, or what is free on a device with memory of its own
  double stall_seconds = 0.05;                // that a step in which somebody decodes may always take
  std::string dump_folder = {};               // for answers that fail; empty: the current one
};

// What the texts of a day depend on, and how they are told from others.
struct TextSettings {
  ServerSettings server = {};
  std::string fingerprint = {};
  ReceiptOrigin chat_receipts = {}, raw_receipts = {};
};

class ServedModel {
 public:
  // Opens all of it, which takes a while. The listener must outlive this. Throws InputError, also for a device whose
  // answers depend on their company, unless that is allowed.
  ServedModel(ServedModelOptions options, Listener* listener);
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;

  // The batch must not outlive this.
  std::unique_ptr<Batch> make_batch() const;

  Device& device() const { return *engine_.device; }  // the engine thread's
  const ModelText& text() const { return *engine_.text; }
  const ModelFacts& facts() const { return facts_; }
  ServerFacts server_facts() const;  // as of now
  // As of now: where no date was given, a new day is a new date. Thread-safe.
  std::shared_ptr<const TextSettings> settings() const;

  int parallel() const { return options_.parallel; }
  std::int64_t context() const { return engine_.decoder.context; }
  std::int64_t kv_positions() const { return engine_.decoder.cache_positions; }
  std::string drafters() const { return drafting_->name(); }
  std::string_view device_name() const { return engine_.device->name(); }
  bool batch_invariant() const { return engine_.device->row_independent(); }

  // Writes a dump of an answer that fails, a few at most, and says where. Never throws. One thread at a time.
  std::string keep_failure(const AnswerFailure& failure, const std::string& id) const;

 private:
  void check_device() const;
  PoolMemory pool_memory() const;
  void size_memory();
  void choose_chat();
  ModelFacts make_facts() const;
  ServerSettings server_settings(const std::string& date) const;
  std::shared_ptr<const TextSettings> settings_of(const std::string& date) const;

  ServedModelOptions options_;
  OpenEngine engine_;
  std::unique_ptr<Drafting> drafting_;
  ChatContext chat_;
  std::string system_;  // that pages send
  SamplingFields recommended_;
  ModelFingerprint fingerprint_;
  ModelFacts facts_;
  mutable std::mutex mutex_;
  mutable std::string settings_date_;
  mutable std::shared_ptr<const TextSettings> settings_;  // shared with requests of that day
  mutable int dumps_ = 0;
};

// The model as the engine thread has it: with a batch.
class ModelEngine final : public ServedEngine {
 public:
  // The model is shared with those who prepare requests and write answers.
  explicit ModelEngine(std::shared_ptr<const ServedModel> model)
      : model_(std::move(model)), batch_(model_->make_batch()) {}

  Batch& batch() override { return *batch_; }
  Device& device() override { return model_->device(); }
  const ModelText& text() const override { return model_->text(); }
  int parallel() const override { return model_->parallel(); }
  std::string keep_failure(const AnswerFailure& failure, const std::string& id) override {
    return model_->keep_failure(failure, id);
  }

 private:
  std::shared_ptr<const ServedModel> model_;
  std::unique_ptr<Batch> batch_;
};

// All weights of a model that has this shape.
std::int64_t parameter_count(const ModelConfig& config);

}  // namespace espalier
