#include "device/cuda/cuda_device.h"

#include <algorithm>

#include "base/error.h"
#include "device/cuda/cluster_ops.h"
#include "device/cuda/early_launch.h"
#include "device/cuda/memory.h"
#include "device/cuda/op_queue.h"
#include "device/cuda/recorded_steps.h"
#include "device/cuda/round_kernels.h"
#include "device/cuda/weights.h"
#include "device/queued_device.h"

namespace espalier::cuda {
namespace {

class Stream {
 public:
  explicit Stream(int device) {
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Of the GPU that was chosen.
LaunchFacts launch_facts(const DeviceInfo& gpu) {
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return {
      .generation = gpu.generation, .compiled_for = compiled_for(), .driver = driver, .shared_bytes = gpu.shared_bytes};
}

// 0 where the GPU, or the code for it, knows no quads, or where it is to do as a card that does not.
int quads_from(const Options& options, const DeviceInfo& gpu) {
  const bool there = !options.small_blocks && has_large_blocks(launch_facts(gpu)) && code_has_quads();
  return there && options.quads_from_rows > 0 ? std::max(options.quads_from_rows, 2) : 0;
}

// Blocks of threads; 0 where none are wanted. From CUDA 12.1 on a driver knows arguments
// of a kernel that are as long as a list of ops.
int cluster_of(const Options& options, const DeviceInfo& gpu) {
  const LaunchFacts facts = launch_facts(gpu);
  if (!options.clusters) return 0;
  const bool known = !options.small_blocks && has_large_blocks(facts) && facts.driver >= 12010;
  const int blocks = known ? cluster_blocks() : 0;
  if (blocks == 0)
    device_error("CUDA: GPU {}, {}: expected one that gathers {} blocks of threads", gpu.index, gpu.name,
                 kClusterBlocks);
  return blocks;
}

// Kernels take rows in tiles of eight, so that rows which fill one cost little; and with more rows than the last of
// these a step takes the GPU longer than the host takes to launch it.
constexpr std::int64_t kRecordedRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96};

class CudaDevice final : public QueuedDevice<OpQueue> {
 public:
  CudaDevice(const Options& options, const DeviceInfo& gpu)
      : options_(options),
        isa_("sm_" + gpu.capability),
        float_order_("16-bit-mma-" + (matrices_are_emulated() ? "emulated" : gpu.capability)),
        stream_(options.index),
        staging_(stream_),
        queue_({.stream = stream_,
                .programmatic = options.programmatic && may_begin_early(launch_facts(gpu)),
                .small_blocks = options.small_blocks || !has_large_blocks(launch_facts(gpu)),
                .processors = gpu.processors,
                .terms = options.activations == Activations::bf16 ? 1 : 2,
                .quads_from_rows = quads_from(options, gpu),
                .cluster = cluster_of(options, gpu)},
               options.fused) {}
  ~CudaDevice() override { cudaStreamSynchronize(stream_); }

  std::string_view name() const override { return "cuda"; }
  std::string_view isa() const override { return isa_; }
  std::span<const std::int64_t> recorded_rows() const override {
    return options_.recorded ? std::span(kRecordedRows) : std::span<const std::int64_t>();
  }
  RoundOps* round_ops() override { return &round_ops_; }
  // What a card's matrix instructions add, and how they round, is the card's; linears of f32 weights add as the
  // contract does.
  std::string_view float_order() const override { return float_order_; }
  std::string_view activations() const override { return espalier::name(options_.activations); }
  std::optional<std::int64_t> free_memory() const override {
    enter();
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }

 private:
  // The GPU is chosen by each thread of the host for itself, so every call chooses it.
  void enter() const { check_cuda(cudaSetDevice(options_.index), "cudaSetDevice"); }
  OpQueue& queue() override {
    enter();
    return queue_;
  }

  // --- memory -------------------------------------------------------------------------------------------------------
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override {
    enter();
    return std::make_unique<DeviceBuffer>(bytes);
  }
  void do_upload(std::span<const std::byte> from, View to) override {
    enter();
    staging_.upload(from, to.data());
  }
  void do_download(std::span<const Download> parts) override {
    enter();
    for (const auto& [from, to] : parts) staging_.download(from.data(), to);
    staging_.finish();
  }
  std::unique_ptr<const Weight> do_load_weight(std::span<const WeightPart> parts) override {
    enter();
    return std::make_unique<CudaWeight>(parts, staging_, stream_);
  }

  // --- steps --------------------------------------------------------------------------------------------------------
  std::unique_ptr<Recordings> do_make_recordings() override { return std::make_unique<RecordedSteps>(stream_); }
  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    const auto in_queue = [&] { queue().step(ops); };
    if (!options_.recorded || key.rows > std::ranges::max(kRecordedRows)) return in_queue();
    auto* const steps = dynamic_cast<RecordedSteps*>(&recordings);
    check(steps != nullptr, "step: recordings of another device");
    enter();
    steps->run(key, in_queue);
  }

  class QueuedRoundOps final : public RoundOps {
   public:
    explicit QueuedRoundOps(CudaDevice& device) : device_(device) {}
    std::int64_t most_nodes() const override { return kMostNodes; }

   private:
    void do_run(const RoundOp& op) override { device_.queue().round(op); }

    CudaDevice& device_;
  };

  Options options_;
  std::string isa_, float_order_;
  Stream stream_;
  Staging staging_;
  OpQueue queue_;
  QueuedRoundOps round_ops_{*this};
};

}  // namespace

std::unique_ptr<Device> make_device(const Options& options) {
  check(!options.small_blocks || matrices_are_emulated(), "CUDA: small blocks, expected them emulated only");
  const Devices devices = list_devices();
  if (!devices.problem.empty()) device_error("CUDA: {}", devices.problem);
  const auto found = std::ranges::find(devices.gpus, options.index, &DeviceInfo::index);
  if (found == devices.gpus.end())
    device_error("CUDA: no GPU {}: there are {}, from 0 on", options.index, devices.gpus.size());
  if (!found->problem.empty()) device_error("CUDA: GPU {}, {}: {}", found->index, found->name, found->problem);
  return std::make_unique<CudaDevice>(options, *found);
}

}  // namespace espalier::cuda
