// What the Ascend device is beside its ops, which the conformance suite looks at: loading, listing, memory, recording,
// and what it says when something is missing or fails. On the recording fake of its API.
#include "device/ascend/ascend_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "device/conformance/fake_card.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

// Where one of these fails, nobody can help it.
bool gives_back(const std::string& call) {
  return call.starts_with("aclDestroy") || call.starts_with("aclrtFree") || call.starts_with("aclrtDestroy") ||
         call.starts_with("aclrtReset");
}

class AscendDeviceTest : public testing::Test {
 protected:
  void TearDown() override { card_.expect_nothing_left(); }
  void fail(const std::function<void(AscendFakeOptions&)>& change) {
    AscendFakeOptions options = FakeCard::default_options();
    change(options);
    card_.reset(options);
  }
  // What opening it says.
  static std::string complaint(const ascend::Options& options = FakeCard::device_options()) {
    try {
      ascend::make_device(options);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "nothing";
  }
  static ascend::Options with_library(const std::string& library) {
    ascend::Options options = FakeCard::device_options();
    options.library.library = library;
    return options;
  }

  FakeCard card_;
};

TEST_F(AscendDeviceTest, SaysWhatItIs) {
  const auto device = card_.open_anew();
  EXPECT_EQ(device->name(), "ascend (fake)");
  EXPECT_EQ(device->isa(), "Ascend910B4");
  EXPECT_FALSE(device->row_independent());
  EXPECT_TRUE(device->prefers_dense_mask() && device->needs_dense_mask() && device->multiplies_hidden_keys());
  EXPECT_EQ(device->row_buckets().front(), 2) << "one row with a mask is silently wrong";
}

TEST_F(AscendDeviceTest, NamesTheLibraryThatIsMissing) {
  ascend::Options nowhere;
  nowhere.library.home = "/nowhere";
  EXPECT_THAT(complaint(nowhere), AllOf(HasSubstr("libascendcl.so was not found"), HasSubstr("set_env.sh")));
  EXPECT_THAT(complaint(with_library("/nowhere/lib.so")), HasSubstr("/nowhere/lib.so: cannot be loaded"));
  EXPECT_THAT(ascend::list_devices(nowhere.library).problem, HasSubstr("libascendcl.so"));
}

TEST_F(AscendDeviceTest, NamesTheFunctionsThatAreMissing) {
  EXPECT_THAT(complaint(with_library("libm.so.6")), AllOf(HasSubstr("aclInit and"), HasSubstr("other functions are")));
}

TEST_F(AscendDeviceTest, FindsLibrariesBelowTheHomeOfCann) {
  card_.reset(FakeCard::default_options());
  ascend::Options options = FakeCard::device_options();
  options.library = {.home = FakeCard::home(), .library = ""};
  EXPECT_EQ(ascend::make_device(options)->name(), "ascend (fake)");
}

TEST_F(AscendDeviceTest, ListsTheCards) {
  fail([](AscendFakeOptions& options) { options.device_count = 2; });
  const ascend::Devices found = ascend::list_devices(FakeCard::device_options().library);
  EXPECT_THAT(found.problem, IsEmpty());
  ASSERT_EQ(found.npus.size(), 2u);
  EXPECT_EQ(found.npus[1].name, "Ascend910B4");
  EXPECT_GT(found.npus[1].memory, 0u);
  ascend::Options third = FakeCard::device_options();
  third.index = 2;
  EXPECT_THAT(complaint(third), HasSubstr("no NPU 2: there are 2, from 0 on"));
}

TEST_F(AscendDeviceTest, SaysThatThereIsNoCard) {
  fail([](AscendFakeOptions& options) { options.device_count = 0; });
  EXPECT_THAT(complaint(), HasSubstr("Ascend: no NPU on this machine"));
}

TEST_F(AscendDeviceTest, WhicheverCallFailsWhileItOpensIsOneErrorAndNothingIsLeft) {
  card_.open_anew();
  std::vector<std::string> names;
  for (std::uint64_t n = 1; n <= card_.counters().calls; ++n) names.push_back(card_.call(n));
  for (const std::int32_t code : {507015, 561003})
    for (std::uint64_t n = 1; n <= names.size(); ++n) {
      if (gives_back(names[n - 1])) continue;
      fail([&](AscendFakeOptions& options) {
        options.fail_call = n;
        options.fail_code = code;
      });
      const std::string said = complaint();
      if (said != "nothing") {
        EXPECT_THAT(said, HasSubstr("Ascend: ")) << "call " << n;
      }
      SCOPED_TRACE(testing::Message() << "call " << n << ", " << names[n - 1]);
      card_.expect_nothing_left();
    }
}

TEST_F(AscendDeviceTest, SaysWhatAStubOrAMissingEnvironmentScriptIs) {
  fail([](AscendFakeOptions& options) {
    options.fail_call = 1;
    options.fail_code = 100039;
  });
  EXPECT_THAT(complaint(), AllOf(HasSubstr("aclInit: error 100039"), HasSubstr("stub")));
}

TEST_F(AscendDeviceTest, MemoryIsZeroAtFirstAndLargeCopiesGoInPieces) {
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

TEST_F(AscendDeviceTest, AnotherThreadMayGoOn) {
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

TEST_F(AscendDeviceTest, BuffersMayOutliveTheDevice) {
  std::unique_ptr<Buffer> buffer;
  {
    const auto device = card_.open_anew();
    buffer = device->allocate(100);
  }
  buffer.reset();
}

TEST_F(AscendDeviceTest, AFaultOnTheCardIsToldByTheNextDownloadWithItsCallAndCode) {
  auto device = card_.open_anew();
  Tensor x = device->tensor(DType::f32, {2, 8}), index = device->tensor(DType::i32, {2}),
         y = device->tensor(DType::f32, {2, 8});
  const std::vector<std::int32_t> outside = {0, 2};
  upload<std::int32_t>(*device, outside, index);
  device->gather_rows(x, index, y);
  std::vector<float> read(16);
  try {
    download<float>(*device, y, read);
    ADD_FAILURE() << "nothing was said";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aclrtSynchronizeStreamWithTimeout: error 507035"), HasSubstr("index")));
  }
}

TEST_F(AscendDeviceTest, AStepRunsThenIsCapturedThenIsReplayedWithoutPlanningAnything) {
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
}

TEST_F(AscendDeviceTest, ProductsAreRightWhereTheyCanOnlyBeWrittenIn16Bits) {
  fail([](AscendFakeOptions& options) { options.f32_from_16_bit = 0; });
  const auto device = ascend::make_device(FakeCard::device_options());
  const std::vector<std::uint16_t> halves = {0x3c00, 0x4000, 0x4200, 0x4400};  // 1, 2, 3, 4
  const WeightPart part{DType::f16, 2, 2, std::as_bytes(std::span(halves))};
  const auto weight = device->load_weight({&part, 1});
  const Tensor x = device->tensor(DType::f32, {2, 2}), y = device->tensor(DType::f32, {2, 2});
  upload<float>(*device, std::vector<float>{1, 10, 2, 20}, x);
  const Projection projection{weight.get(), {}, y};
  device->linear(x, {&projection, 1});
  std::vector<float> read(4);
  download<float>(*device, y, read);
  EXPECT_EQ(read, (std::vector<float>{21, 43, 42, 86}));
}

TEST(AscendMemory, BlockFormatsTakeTwoBytesAWeight) {
  EXPECT_EQ(ascend::stored_bytes(DType::q4_0, 64), 128);
  EXPECT_EQ(ascend::stored_bytes(DType::bf16, 64), 128);
  EXPECT_EQ(ascend::stored_bytes(DType::f32, 64), 256);
}

}  // namespace
}  // namespace espalier
