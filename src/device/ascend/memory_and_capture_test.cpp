// What the Ascend device keeps: memory, weights, copies, captured steps and what the ops of a step share.
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "device/ascend/testing/ascend_device_fixture.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using AscendMemory = AscendDeviceTest;

TEST_F(AscendMemory, MemoryIsZeroAtFirstAndLargeCopiesGoInPieces) {
  const auto device = card_.open_anew();
  const std::int64_t n = 400'000;
  const Tensor tensor = device->tensor(DType::i32, {n});
  std::vector<std::int32_t> read(static_cast<std::size_t>(n), 7), numbers(read.size());
  download<std::int32_t>(*device, tensor, read);
  EXPECT_EQ(read, numbers);
  std::iota(numbers.begin(), numbers.end(), 0);
  upload<std::int32_t>(*device, numbers, tensor);
  download<std::int32_t>(*device, tensor, read);
  EXPECT_EQ(read, numbers);
}

TEST_F(AscendMemory, AnotherThreadMayGoOn) {
  const auto device = card_.open_anew();
  const Tensor x = device->tensor(DType::f32, {2, 8});
  std::thread([&] {
    const std::vector<float> ones(16, 1.0f);
    upload<float>(*device, ones, x);
    device->add(x, Tensor(device->tensor(DType::f32, {2, 8})));
  }).join();
  std::vector<float> read(16);
  download<float>(*device, x, read);
  EXPECT_EQ(read, std::vector<float>(16, 1.0f));
}

TEST_F(AscendMemory, BuffersMayOutliveTheDevice) {
  std::unique_ptr<Buffer> buffer;
  {
    const auto device = card_.open_anew();
    buffer = device->allocate(100);
  }
  buffer.reset();
}

TEST_F(AscendMemory, AWeightHasTheWidestTypeOfItsParts) {
  const std::vector<std::uint16_t> halves = {f32_to_f16(1.5f), f32_to_f16(2)};
  const std::vector<std::uint16_t> wide = {f32_to_bf16(0x1p100f), f32_to_bf16(0)};
  const std::vector<float> exact = {1 + 0x1p-20f, 0};
  const WeightPart f16{DType::f16, 1, 2, std::as_bytes(std::span(halves))};
  const WeightPart bf16{DType::bf16, 1, 2, std::as_bytes(std::span(wide))};
  const WeightPart f32{DType::f32, 1, 2, std::as_bytes(std::span(exact))};
  for (const char* chip : {"Ascend910B4", "Ascend310P3"}) {
    SCOPED_TRACE(chip);
    fail([&](AscendFakeOptions& options) { options.soc_name = chip; });
    const auto device = ascend::make_device(FakeCard::device_options());
    EXPECT_THAT(product_with(*device, std::vector{f16, bf16}), ElementsAre(3.5f, 0x1p100f, 3.5f, 0x1p100f));
    EXPECT_THAT(product_with(*device, std::vector{f16, f32}),
                ElementsAre(3.5f, testing::FloatNear(1, 0x1p-8f), 3.5f, testing::FloatNear(1, 0x1p-8f)));
  }
  EXPECT_EQ(product_with(*card_.open_anew(), std::vector{f32})[0], exact[0]);
}

TEST_F(AscendMemory, BlockFormatsTakeTwoBytesAWeight) {
  EXPECT_EQ(ascend::stored_bytes(DType::q4_0, 64), 128);
  EXPECT_EQ(ascend::stored_bytes(DType::bf16, 64), 128);
  EXPECT_EQ(ascend::stored_bytes(DType::f32, 64), 256);
}

TEST_F(AscendMemory, AMaskThatIsWiderThanTheTableGoesTheEagerWay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();  // which 0 does not make nothing of
  EXPECT_THAT(attended(*card_.open_anew(), 256, kInfinity), testing::Each(2));
}

TEST_F(AscendMemory, AStepRunsThenIsCapturedThenIsReplayedWithoutPlanningAnything) {
  const auto device = card_.open_anew();
  const Tensor x = device->tensor(DType::f32, {2, 8}), y = device->tensor(DType::f32, {2, 8});
  const std::vector<float> ones(16, 1.0f);
  upload<float>(*device, ones, y);
  const auto recordings = device->make_recordings();
  const auto step = [&] { device->step(*recordings, {.rows = 2}, [&] { device->add(x, y); }); };
  step();
  EXPECT_EQ(card_.counters().captures, 0u);
  step();
  EXPECT_EQ(card_.counters().captures, 1u);
  const std::uint64_t planned = card_.counters().phase_one_calls;
  step();
  step();
  EXPECT_EQ(card_.counters().phase_one_calls, planned);
  EXPECT_EQ(card_.counters().replays, 3u);
  std::vector<float> read(16);
  download<float>(*device, x, read);
  EXPECT_EQ(read, std::vector<float>(16, 4.0f));
  step();  // is under way when its graph goes
}

TEST_F(AscendMemory, AStepThatNeedsMoreMemoryWhenItIsCapturedRunsAndIsCapturedLater) {
  card_.reset(FakeCard::default_options());
  ascend::Options options = heard();
  options.arena_bytes = 64;
  const auto device = ascend::make_device(options);
  const Tensor few = device->tensor(DType::f32, {2, 8}), many = device->tensor(DType::f32, {2, 3000});
  const Tensor id = device->tensor(DType::i32, {2});
  std::vector<float> numbers(6000);
  numbers[2999] = numbers[3000] = 1;
  upload<float>(*device, numbers, many);
  const auto recordings = device->make_recordings();
  const auto step = [&](const Tensor& x) { device->step(*recordings, {.rows = 2}, [&] { device->argmax(x, id); }); };
  const auto ids = [&] {
    std::vector<std::int32_t> read(2);
    download<std::int32_t>(*device, id, read);
    return read;
  };
  step(few);
  step(many);
  EXPECT_EQ(card_.counters().replays, 0u);
  EXPECT_THAT(ids(), ElementsAre(2999, 0));
  step(many);
  EXPECT_EQ(card_.counters().replays, 1u);
  EXPECT_THAT(ids(), ElementsAre(2999, 0));
  const Tensor wide = device->tensor(DType::f32, {2, 9000});  // outside of a step memory grows again
  device->argmax(wide, id);
  EXPECT_THAT(ids(), ElementsAre(0, 0));
  step(many);
  EXPECT_THAT(ids(), ElementsAre(2999, 0)) << "the graph still has the memory it was captured with";
  EXPECT_THAT(remarks_, IsEmpty());
}

TEST_F(AscendMemory, ScratchThatWouldGrowInsideACaptureIsAllocatedOutsideOfIt) {
  card_.reset(FakeCard::default_options());
  const auto device = ascend::make_device(heard());
  constexpr std::int64_t kColumns = 300'000;  // more than the arenas have after the probes
  const Tensor few = device->tensor(DType::f32, {2, 8}), many = device->tensor(DType::f32, {2, kColumns});
  const Tensor sum = device->tensor(DType::f32, {2});
  const auto recordings = device->make_recordings();
  for (const Tensor* x : {&few, &many, &many})
    device->step(*recordings, {.rows = 2}, [&] { device->log_sum_exp(*x, 1.0f, sum); });
  EXPECT_EQ(card_.counters().replays, 1u) << "captured when it came for the third time";
  std::vector<float> read(2);
  download<float>(*device, sum, read);
  EXPECT_NEAR(read[0], std::log(static_cast<double>(kColumns)), 1e-3);
}

TEST_F(AscendMemory, GraphsAreLimitedAndThoseThatAreGoneMakeRoom) {
  card_.reset(FakeCard::default_options());
  ascend::Options options = heard();
  options.most_graphs = 1;
  const auto device = ascend::make_device(options);
  const Tensor x = device->tensor(DType::f32, {2, 8}), y = device->tensor(DType::f32, {2, 8});
  const auto step_twice = [&](Recordings& recordings, std::int64_t rows) {
    for (int i = 0; i < 2; ++i) device->step(recordings, {.rows = rows}, [&] { device->add(x, y); });
  };
  auto recordings = device->make_recordings();
  step_twice(*recordings, 2);
  EXPECT_THAT(remarks_, IsEmpty());
  recordings = device->make_recordings();
  step_twice(*recordings, 2);
  EXPECT_EQ(card_.counters().captures, 2u);
  EXPECT_THAT(remarks_, IsEmpty());
  step_twice(*recordings, 8);
  step_twice(*recordings, 16);
  EXPECT_EQ(card_.counters().captures, 2u);
  EXPECT_THAT(remarks_, ElementsAre(HasSubstr("1 are recorded already")));
}

TEST_F(AscendMemory, AnglesOfAStepAreThoseOfThePositionsThatAreAskedFor) {
  const auto device = card_.open_anew();
  const Tensor cosine = device->tensor(DType::f32, {2, 1}), sine = device->tensor(DType::f32, {2, 1});
  upload<float>(*device, std::vector<float>{1, 0}, cosine);  // no turn, a quarter
  upload<float>(*device, std::vector<float>{0, 1}, sine);
  const Tensor here = device->tensor(DType::i32, {2}), there = device->tensor(DType::i32, {2});
  upload<std::int32_t>(*device, std::vector<std::int32_t>{0, 0}, here);
  upload<std::int32_t>(*device, std::vector<std::int32_t>{1, 1}, there);
  const Tensor x = device->tensor(DType::f32, {2, 1, 2}), y = device->tensor(DType::f32, {2, 1, 2});
  const auto recordings = device->make_recordings();
  std::vector<float> read(4);
  for (int i = 0; i < 3; ++i) {
    upload<float>(*device, std::vector<float>{1, 2, 3, 4}, x);
    upload<float>(*device, std::vector<float>{1, 2, 3, 4}, y);
    device->step(*recordings, {.rows = 2}, [&] {
      device->rope(x, here, cosine, sine);
      device->rope(y, there, cosine, sine);
      device->rope(y, there, cosine, sine);  // from what the step keeps
    });
    download<float>(*device, x, read);
    EXPECT_THAT(read, ElementsAre(1, 2, 3, 4));
    download<float>(*device, y, read);
    EXPECT_THAT(read, ElementsAre(-1, -2, -3, -4));
  }
  device->rope(x, here, cosine, sine);
  upload<std::int32_t>(*device, std::vector<std::int32_t>{1, 1}, here);
  device->rope(x, here, cosine, sine);  // outside of a step every op looks at the positions anew
  download<float>(*device, x, read);
  EXPECT_THAT(read, ElementsAre(-2, 1, -4, 3));
}

}  // namespace
}  // namespace espalier
