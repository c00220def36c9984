#include "engine/device_choice.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGiB = 1 << 30;

cuda::DeviceInfo gpu(int index, std::int64_t free, std::string problem = {}) {
  return {.index = index,
          .name = "NVIDIA T9",
          .memory = static_cast<std::size_t>(24 * kGiB),
          .free_memory = static_cast<std::size_t>(free),
          .problem = std::move(problem)};
}

cuda::Devices machine(std::vector<cuda::DeviceInfo> gpus, std::string problem = {}) {
  return {.gpus = std::move(gpus), .problem = std::move(problem), .present = true};
}

// These GPUs are known already.
void as_described(cuda::DeviceInfo&) {}

DeviceChoice choose(const MemoryNeeds& needs, const cuda::Devices& gpus) {
  return choose_device(needs, gpus, as_described);
}

constexpr MemoryNeeds kNeeds{.weights = 8 * kGiB, .kv = kGiB, .positions = 8192, .workspace = kGiB / 2};

TEST(DeviceChoice, TakesAGpuThatHasRoom) {
  const DeviceChoice choice = choose(kNeeds, machine({gpu(0, kNeeds.total())}));
  EXPECT_EQ(choice.device, "cuda:0");
  EXPECT_EQ(choice.remark, "");
}

TEST(DeviceChoice, TakesTheFirstOfSeveralThatCanBeUsedAndHasRoom) {
  const auto gpus = machine({gpu(0, 20 * kGiB, "compute capability 7.5, expected 8.0 or later"), gpu(1, 9 * kGiB),
                             gpu(2, 20 * kGiB), gpu(3, 22 * kGiB)});
  EXPECT_EQ(choose(kNeeds, gpus).device, "cuda:2");
}

TEST(DeviceChoice, LooksAtNoGpuBehindTheOneItTakes) {
  std::vector<int> looked_at;
  const auto look = [&](cuda::DeviceInfo& gpu) {
    looked_at.push_back(gpu.index);
    gpu.free_memory = static_cast<std::size_t>(gpu.index == 1 ? 0 : 20 * kGiB);
    if (gpu.index == 2) gpu.problem = "busy";
  };
  const auto gpus = machine({gpu(0, 0, "too old"), gpu(1, 0), gpu(2, 0), gpu(3, 0), gpu(4, 0)});
  EXPECT_EQ(choose_device(kNeeds, gpus, look).device, "cuda:3");
  EXPECT_EQ(looked_at, (std::vector{1, 2, 3}));
  EXPECT_EQ(choose_device(kNeeds, machine({gpu(2, 0)}), look).remark, "computing on the CPU: GPU 2, NVIDIA T9: busy");
}

TEST(DeviceChoice, SaysNothingWhereThereIsNoGpu) {
  for (const char* problem : {"no NVIDIA driver on this machine", "this program was built without CUDA"}) {
    const DeviceChoice choice = choose(kNeeds, {.problem = problem});
    EXPECT_EQ(choice.device, "cpu");
    EXPECT_EQ(choice.remark, "");
  }
}

TEST(DeviceChoice, SaysInNumbersThatAGpuIsTooSmall) {
  const DeviceChoice choice = choose(kNeeds, machine({gpu(0, 2 * kGiB), gpu(1, 9 * kGiB)}));
  EXPECT_EQ(choice.device, "cpu");
  EXPECT_EQ(choice.remark,
            "computing on the CPU: GPU 1, NVIDIA T9: the model needs 9.5 GiB (weights 8.0, KV of 8192 positions 1.0, "
            "workspace 0.5), 9.0 of 24.0 GiB are free");
}

TEST(DeviceChoice, SaysThatADriverIsTooOld) {
  const DeviceChoice choice = choose(kNeeds, machine({}, "CUDA driver version is insufficient (driver for 11.0)"));
  EXPECT_EQ(choice.device, "cpu");
  EXPECT_EQ(choice.remark, "computing on the CPU: CUDA driver version is insufficient (driver for 11.0)");
}

TEST(DeviceChoice, NamesTheGpuThatCannotBeUsed) {
  const std::string problem = "GPU 0, NVIDIA T9: compute capability 7.5, expected 8.0 or later";
  const DeviceChoice choice = choose(kNeeds, machine({gpu(0, 20 * kGiB, "too old")}, problem));
  EXPECT_EQ(choice.device, "cpu");
  EXPECT_EQ(choice.remark, "computing on the CPU: " + problem);
}

ModelConfig small_config() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 64;
  config.intermediate = 128;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 16;
  config.vocabulary = 1000;
  return config;
}

// A model of one matrix of each kind, and a norm.
struct SmallModel {
  ModelConfig config = small_config();
  std::vector<std::byte> bytes = std::vector<std::byte>(64 * 64 * 2);
  std::vector<TensorInfo> tensors = {
      {.name = "a", .type = DType::f16, .shape = {64, 64}, .bytes = std::span(bytes).first(64 * 64 * 2)},
      {.name = "b", .type = DType::q8_0, .shape = {64, 32}, .bytes = std::span(bytes).first(64 * 34)},
      {.name = "norm", .type = DType::f16, .shape = {64}, .bytes = std::span(bytes).first(128)}};

  MemoryNeeds needs(WeightMode mode, DType kv = DType::f16, std::int64_t positions = 100) const {
    return memory_needs(config, tensors, {.weights = mode, .kv_type = kv, .positions = positions});
  }
};

std::int64_t with_layout(std::int64_t bytes) {
  return bytes + bytes / 32;
}

TEST(MemoryNeeds, CountWeightsAsTheyWillBeLoaded) {
  const SmallModel model;
  const std::int64_t norm = 64 * 4;
  EXPECT_EQ(model.needs(WeightMode::stored).weights, with_layout(64 * 64 * 2 + 64 * 34 + norm));
  EXPECT_EQ(model.needs(WeightMode::f32).weights, with_layout(64 * 64 * 4 + 64 * 32 * 4 + norm));
  EXPECT_EQ(model.needs(WeightMode::q8_0).weights, with_layout(64 * 64 / 32 * 34 + 64 * 34 + norm));
}

TEST(MemoryNeeds, CountKeysAndValuesOfEveryPosition) {
  const SmallModel model;
  EXPECT_EQ(model.needs(WeightMode::stored, DType::f16, 100).kv, 100 * 2 * 2 * 2 * 16 * 2);
  EXPECT_EQ(model.needs(WeightMode::stored, DType::f32, 300).kv, 3 * 2 * model.needs(WeightMode::stored).kv);
  EXPECT_GT(model.needs(WeightMode::stored).workspace, 0);
}

TEST(MemoryNeeds, CountWhatWillLieBesideTheModel) {
  const SmallModel model;
  const MemoryNeeds alone = memory_needs(model.config, model.tensors, {});
  const MemoryNeeds with_head = memory_needs(model.config, model.tensors, {.beside = 32'000});
  EXPECT_EQ(with_head.total(), alone.total() + with_layout(32'000));
}

TEST(MemoryNeeds, HaveRoomForTheLargestTensorOnItsWay) {
  const SmallModel model;
  const MemoryNeeds needs = model.needs(WeightMode::stored);
  EXPECT_EQ(needs.on_its_way, 64 * 64 * 2);
  EXPECT_EQ(needs.total(), needs.weights + needs.kv + needs.workspace) << "which come when it has gone";
  MemoryNeeds loading = needs;
  loading.on_its_way = needs.kv + needs.workspace + 1;
  EXPECT_EQ(loading.total(), needs.total() + 1);
}

TEST(MemoryNeeds, FitWhereTheyAreFree) {
  EXPECT_EQ(lack_of_memory(kNeeds, gpu(0, kNeeds.total())), "");
  EXPECT_THAT(lack_of_memory(kNeeds, gpu(0, kNeeds.total() - 1)), HasSubstr("the model needs 9.5 GiB"));
}

TEST(CheckRoom, RefusesAGpuThatIsTooSmallInOneLineWithTheNumbers) {
  const auto gpus = machine({gpu(0, 20 * kGiB), gpu(1, 9 * kGiB), gpu(2, 9 * kGiB, "too old")});
  EXPECT_NO_THROW(check_room("cuda", kNeeds, gpus, as_described));
  EXPECT_NO_THROW(check_room("cuda:2", kNeeds, gpus, as_described)) << "it is told why it cannot be used";
  EXPECT_NO_THROW(check_room("cuda:3", kNeeds, gpus, as_described)) << "it is told that there is none";
  try {
    check_room("cuda:1", kNeeds, gpus, as_described);
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(),
                 "CUDA: GPU 1, NVIDIA T9: the model needs 9.5 GiB (weights 8.0, KV of 8192 positions 1.0, workspace "
                 "0.5), 9.0 of 24.0 GiB are free; try a smaller --context, or --device cpu");
  }
}

// A device that adds float weights in an order of its own.
class OwnOrder final : public PassingDevice {
 public:
  explicit OwnOrder(Device& inner) : PassingDevice(inner) {}
  std::string_view float_order() const override { return "tensor-cores-9"; }
};

TEST(TextRemark, OnlyWhereTheTextMayBeAnother) {
  const auto plain = make_reference_device();
  const OwnOrder own(*plain);
  EXPECT_EQ(text_remark(*plain, "cuda:0", true), "");
  EXPECT_EQ(text_remark(own, "cuda:0", false), "");
  EXPECT_THAT(text_remark(own, "cuda:0", true), HasSubstr("cuda:0"));
}

}  // namespace
}  // namespace espalier
