#include "device/ascend/ascend_device.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "device/ascend/memory.h"
#include "device/ascend/op_queue.h"
#include "device/ascend/probes.h"
#include "device/ascend/recorded_steps.h"
#include "device/ascend/weights.h"
#include "device/queued_device.h"

namespace espalier::ascend {
namespace {

// From two upwards: the kernel for a single row forgets the mask (attention.cpp).
constexpr std::int64_t kBuckets[] = {2, 8, 16, 32, 64, 128, 512};
// Where the driver's installer writes its version, as a line "Version=25.0.rc1".
constexpr const char* kDriverFile = "/usr/local/Ascend/driver/version.info";
constexpr MemoryLayout kLayout = {.alignment = 64, .slack = 32};

std::string driver_version(const char* path) {
  constexpr std::string_view kKey = "Version=";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(kKey)) return line.substr(kKey.size());
  return "";
}

class AscendDevice final : public QueuedDevice<OpQueue> {
 public:
  AscendDevice(std::shared_ptr<const Api> api, const Options& options)
      : options_(options),
        card_(std::make_shared<Card>(std::move(api), CardOptions{options.index, options.timeout_ms})),
        name_(is_fake(card_->api()) ? "ascend (fake)" : "ascend"),
        staging_(card_, options.staging_bytes),
        queue_(card_, staging_, options.arena_bytes),
        limits_(std::make_shared<RecordingLimits>()) {
    limits_->enabled = options.recorded;
    limits_->most_graphs = options.most_graphs;
    limits_->remark = options.remark;
    probe(queue_, card_, staging_, options.fused, options.remark);
  }

  std::string_view name() const override { return name_; }
  std::string_view isa() const override { return card_->chip().name; }
  std::span<const std::int64_t> row_buckets() const override { return kBuckets; }
  MemoryLayout memory_layout() const override { return kLayout; }
  bool row_independent() const override { return false; }
  std::string_view float_order() const override { return "unordered"; }
  std::string_view activations() const override { return "16bit"; }
  bool prefers_dense_mask() const override { return true; }
  bool needs_dense_mask() const override { return true; }
  bool multiplies_hidden_keys() const override { return true; }
  bool is_stand_in() const override { return is_fake(card_->api()); }

  CardFacts facts() const {
    enter();
    const Chip& chip = card_->chip();
    const Abilities& abilities = queue_.abilities();
    const auto [free, total] = card_->memory();
    return {.chip = chip.name,
            .runtime = chip.acl_major == 0 ? "" : fmt::format("{}.{}", chip.acl_major, chip.acl_minor),
            .driver = is_stand_in() ? "" : driver_version(kDriverFile),
            .memory = total,
            .free_memory = free,
            .fused_version = queue_.fused_version(),
            .f32_from_f16 = abilities.f32_from_f16,
            .f32_from_bf16 = abilities.f32_from_bf16,
            .fused_f16 = abilities.fused_f16,
            .fused_bf16 = abilities.fused_bf16};
  }

 private:
  // Contexts belong to threads, so every call from outside of a step sets it.
  void enter() const {
    if (!in_step_) card_->enter();
  }
  OpQueue& queue() override {
    enter();
    return queue_;
  }

  // --- memory -------------------------------------------------------------------------------------------------------
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override {
    enter();
    return std::make_unique<DeviceBuffer>(card_, bytes);
  }
  void do_upload(std::span<const std::byte> from, View to) override {
    enter();
    staging_.upload(from, to.data());
  }
  void do_download(std::span<const Download> parts) override {
    enter();
    staging_.download(parts);
  }
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    enter();
    return std::make_unique<AscendWeight>(parts, card_, staging_);
  }

  // --- steps --------------------------------------------------------------------------------------------------------
  std::unique_ptr<Recordings> do_make_recordings() override { return std::make_unique<RecordedSteps>(card_, limits_); }
  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    auto* const steps = dynamic_cast<RecordedSteps*>(&recordings);
    check(steps != nullptr, "step: recordings of another device");
    enter();
    steps->run(key, [&] {
      const StepScope scope(*this, key);
      ops();
    });
  }
  struct StepScope {
    StepScope(AscendDevice& device, const StepKey& key) : device(device) {
      device.in_step_ = true;
      device.queue_.begin_step(key.sequences);
    }
    ~StepScope() {
      device.queue_.end_step();
      device.in_step_ = false;
    }
    StepScope(const StepScope&) = delete;
    StepScope& operator=(const StepScope&) = delete;
    AscendDevice& device;
  };

  Options options_;
  std::shared_ptr<Card> card_;  // with buffers, weights and recordings
  std::string name_;
  Staging staging_;
  OpQueue queue_;
  std::shared_ptr<RecordingLimits> limits_;  // with recordings
  bool in_step_ = false;
};

}  // namespace

std::unique_ptr<Device> make_device(const Options& options) {
  std::shared_ptr<const Api> api = load_api(options.library);
  const int count = count_npus(*api);
  if (options.index >= count) device_error("Ascend: no NPU {}: there are {}, from 0 on", options.index, count);
  return std::make_unique<AscendDevice>(std::move(api), options);
}

std::optional<CardFacts> card_facts(const Device& device) {
  const auto* const mine = dynamic_cast<const AscendDevice*>(&device);
  return mine == nullptr ? std::nullopt : std::optional(mine->facts());
}

std::int64_t stored_bytes(DType type, std::int64_t elements) {
  const WeightPart part{.type = type, .outputs = 1, .inputs = elements, .bytes = {}};
  return elements * element_bytes(stored_type({&part, 1}, true));
}

}  // namespace espalier::ascend
