// What the Ascend device is beside its ops, which the conformance suite looks at: loading, listing, memory, recording,
// and what it says when something is missing or fails. On the recording fake of its API.
#include "device/ascend/ascend_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/float16.h"
#include "device/conformance/fake_card.h"
#include "device/cpu/cpu_device.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Names = std::vector<std::string>;

constexpr std::string_view kFused = "aclnnFusedInferAttentionScore";

// Where one of these fails, nobody can help it.
bool gives_back(const std::string& call) {
  return call.starts_with("aclDestroy") || call.starts_with("aclrtFree") || call.starts_with("aclrtDestroy") ||
         call.starts_with("aclrtReset");
}

// Which chip and version it is nobody needs to know, destructors go on, and an operator that refuses is done without.
bool is_done_without(const std::string& call, std::int32_t code) {
  static const std::set<std::string> calls = {"aclrtGetSocName", "aclrtGetVersion", "aclrtSetCurrentContext",
                                              "aclrtSynchronizeStreamWithTimeout"};
  return calls.contains(call) || code == 561003;
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
  // Options of a device whose remarks are kept here.
  ascend::Options heard() {
    ascend::Options options = FakeCard::device_options();
    options.remark = [this](std::string_view line) { remarks_.emplace_back(line); };
    return options;
  }
  // All calls since the reset.
  static Names calls(const FakeCard& card) {
    Names names;
    for (std::uint64_t n = 1; n <= card.counters().calls; ++n) names.push_back(card.call(n));
    return names;
  }

  FakeCard card_;
  Names remarks_;
};

std::ptrdiff_t count_of(const Names& names, std::string_view name) {
  return std::ranges::count(names, name);
}

// y = W x of two rows of ones on this device.
std::vector<float> product_with(Device& device, std::span<const WeightPart> parts) {
  const auto weight = device.load_weight(parts);
  const Tensor x = device.tensor(DType::f32, {2, weight->inputs()}),
               y = device.tensor(DType::f32, {2, weight->outputs()});
  upload<float>(device, std::vector<float>(static_cast<std::size_t>(2 * weight->inputs()), 1.0f), x);
  const Projection projection{weight.get(), {}, y};
  device.linear(x, {&projection, 1});
  std::vector<float> read(static_cast<std::size_t>(2 * weight->outputs()));
  download<float>(device, y, read);
  return read;
}

// The mean of two values, by attention over two keys that are equal; each of two rows sees keys of its own.
// columns: of the mask, for a table of one block    unseen: what values are that nobody sees
std::vector<float> attended(Device& device, std::int64_t columns = 128, float unseen = 7) {
  const Tensor q = device.tensor(DType::f32, {2, 1, 16}), out = device.tensor(DType::f32, {2, 1, 16});
  const Tensor k = device.tensor(DType::f16, {1, 128, 1, 16}), v = device.tensor(DType::f16, {1, 128, 1, 16});
  const Tensor blocks = device.tensor(DType::i32, {1, 1}), mask = device.tensor(DType::u8, {1, 1, 2, columns});
  std::vector<std::uint16_t> values(128 * 16, f32_to_f16(unseen));
  for (std::int64_t key = 0; key < 4; ++key)
    std::fill_n(values.begin() + key * 16, 16, f32_to_f16(key % 2 == 0 ? 1.0f : 3.0f));
  upload<std::uint16_t>(device, values, v);
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(2 * columns), 1);
  std::fill_n(hidden.begin(), 2, std::uint8_t{0});
  std::fill_n(hidden.begin() + columns + 2, 2, std::uint8_t{0});
  upload<std::uint8_t>(device, hidden, mask);
  const Tensor zeros = device.tensor(DType::i32, {2}), none = device.tensor(DType::i32, {2, 1});
  RowTables rows;
  rows.slot = rows.sequence = rows.begin = rows.end = rows.ancestor_count = zeros;
  rows.ancestors = none;
  rows.blocks = blocks;
  rows.mask = mask;
  device.attention(q, {k, v}, rows, 1.0f, out);
  std::vector<float> read(2 * 16);
  download<float>(device, out, read);
  return read;
}

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

TEST_F(AscendDeviceTest, WithHalfOfTheOperatorsItIsOneErrorAndAnotherDeviceGoesOn) {
  const FakeCard half("ascend_fake_half");
  half.reset(FakeCard::default_options());
  const ascend::Options options = FakeCard::device_options("ascend_fake_half");
  const std::string missing = "aclnnEmbeddingGetWorkspaceSize and 23 other functions are missing from the installed";
  EXPECT_THAT(complaint(options), AllOf(HasSubstr(missing), HasSubstr("expected CANN 8.1 or later")));
  EXPECT_THAT(ascend::list_devices(options.library).problem, HasSubstr(missing));
  EXPECT_EQ(half.counters().calls, 0u) << "nothing of it is used";
  half.expect_nothing_left();
  ascend::shut_down(options.library);
  half.expect_nothing_left();
  const std::vector<float> weights = {1, 2, 3, 4};
  const WeightPart part{DType::f32, 2, 2, std::as_bytes(std::span(weights))};
  EXPECT_THAT(product_with(*make_cpu_device({.threads = 1}), {&part, 1}), ElementsAre(3, 7, 3, 7));
  EXPECT_THAT(product_with(*card_.open_anew(), {&part, 1}), ElementsAre(3, 7, 3, 7));
}

TEST_F(AscendDeviceTest, EveryVersionOpensAndEveryChipHasTheFusedOperatorThatIsDocumentedForIt) {
  struct Case {
    const char *version, *chip, *fused;
    std::int32_t profile;
  };
  for (const auto& [version, chip, fused, profile] : {Case{"ascend_fake_8_1", "Ascend910B4", "V2", 81},
                                                      {"ascend_fake_8_1", "Ascend910_9391", "", 81},
                                                      {"ascend_fake_8_5", "Ascend910B4", "V2", 85},
                                                      {"ascend_fake_8_5", "Ascend910_9391", "V4", 85},
                                                      {"ascend_fake_8_5", "Ascend950PR", "V2", 85},
                                                      {"ascend_fake", "Ascend910B4", "V2", 91},
                                                      {"ascend_fake", "Ascend910_9391", "V4", 91},
                                                      {"ascend_fake", "Ascend950PR", "V5", 91},
                                                      {"ascend_fake", "Ascend310P3", "", 91},
                                                      // The early form of V4: the symbol is there, the version is not.
                                                      {"ascend_fake", "Ascend910_9391", "", 81}}) {
    SCOPED_TRACE(testing::Message() << version << " on " << chip);
    const FakeCard card(version);
    AscendFakeOptions fake = FakeCard::default_options(version);
    fake.soc_name = chip;
    fake.profile = profile;
    card.reset(fake);
    ascend::Options options = heard();
    options.library = FakeCard::device_options(version).library;
    EXPECT_THAT(attended(*ascend::make_device(options)), testing::Each(2));
    EXPECT_THAT(remarks_, IsEmpty()) << "nothing was tried in vain";
    std::set<std::string> called;
    for (const std::string& name : calls(card))
      if (name.starts_with(kFused) && !name.ends_with("Size")) called.insert(name.substr(kFused.size()));
    EXPECT_EQ(called, *fused == 0 ? std::set<std::string>{} : std::set<std::string>{fused});
    card.expect_nothing_left();
  }
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

TEST_F(AscendDeviceTest, TellsTheMemoryOfACardThatHasAnotherKindOfIt) {
  fail([](AscendFakeOptions& options) { options.soc_name = "Ascend310P3"; });
  EXPECT_GT(ascend::list_devices(FakeCard::device_options().library).npus.at(0).memory, 0u);
  fail([](AscendFakeOptions& options) {
    options.soc_name = "Ascend310P3";
    options.fail_allocation = 2;
  });
  EXPECT_THAT(complaint(), AllOf(HasSubstr("error 207001: no memory for"), HasSubstr("of 8192.0 MiB are free")));
}

TEST_F(AscendDeviceTest, TwoCardsMayBeOpenAndEachIsGivenBack) {
  fail([](AscendFakeOptions& options) { options.device_count = 2; });
  ascend::Options second = FakeCard::device_options();
  second.index = 1;
  const auto one = ascend::make_device(FakeCard::device_options());
  ascend::make_device(second).reset();
  EXPECT_THAT(attended(*one), testing::Each(2));
}

TEST_F(AscendDeviceTest, WhatIsSetIsResetAndAtTheEndTheRuntimeIsShutDown) {
  card_.open_anew().reset();
  ascend::list_devices(FakeCard::device_options().library);
  const Names names = calls(card_);
  EXPECT_GT(count_of(names, "aclrtSetDevice"), 0);
  EXPECT_EQ(count_of(names, "aclrtResetDevice"), count_of(names, "aclrtSetDevice"));
  ascend::shut_down(FakeCard::device_options().library);
  EXPECT_EQ(calls(card_).back(), "aclFinalize");
}

TEST_F(AscendDeviceTest, SumsAreMadeDeterministicBeforeTheFirstOperator) {
  const auto device = card_.open_anew();
  const Names names = calls(card_);
  const auto at = [&](std::string_view name) { return std::ranges::find(names, name) - names.begin(); };
  const auto first = std::ranges::find_if(names, [](const std::string& name) { return name.starts_with("aclnn"); });
  EXPECT_LT(at("aclrtSetSysParamOpt"), first - names.begin());
  EXPECT_LT(at("aclrtCtxSetSysParamOpt"), first - names.begin());
}

TEST_F(AscendDeviceTest, WhicheverCallFailsWhileItOpensIsOneErrorAndNothingIsLeft) {
  card_.open_anew();
  const Names names = calls(card_);
  for (const std::int32_t code : {507015, 561003})
    for (std::uint64_t n = 1; n <= names.size(); ++n) {
      if (gives_back(names[n - 1])) continue;
      fail([&](AscendFakeOptions& options) {
        options.fail_call = n;
        options.fail_code = code;
      });
      const std::string said = complaint();
      if (said != "nothing" || !is_done_without(names[n - 1], code)) {
        EXPECT_THAT(said, HasSubstr("Ascend: ")) << "call " << n << ", " << names[n - 1];
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
    EXPECT_THAT(error.what(), AllOf(HasSubstr("aclrtSynchronizeStreamWithTimeout: error 507035"),
                                    HasSubstr("a fault on the NPU: an index outside of its table): ")))
        << "and the runtime's own words";
  }
  EXPECT_THROW(download<float>(*device, x, read), DeviceError) << "nothing runs behind a fault";
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
  step();  // is under way when its graph goes
}

TEST_F(AscendDeviceTest, AStepThatNeedsMoreMemoryWhenItIsCapturedRunsAndIsCapturedLater) {
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

TEST_F(AscendDeviceTest, AStepThatFailsWhileItIsCapturedLeavesADeviceThatGoesOn) {
  const auto device = card_.open_anew();
  const Tensor x = device->tensor(DType::f32, {2, 8}), y = device->tensor(DType::f32, {2, 8});
  upload<float>(*device, std::vector<float>(16, 1.0f), y);
  const auto recordings = device->make_recordings();
  const auto step = [&](bool fails) {
    device->step(*recordings, {.rows = 2}, [&] {
      device->add(x, y);
      if (fails) throw std::runtime_error("in the middle");
    });
  };
  step(false);
  EXPECT_THROW(step(true), std::runtime_error);
  step(false);
  step(false);
  std::vector<float> read(16);
  download<float>(*device, x, read);
  EXPECT_EQ(read, std::vector<float>(16, 3.0f));
}

TEST_F(AscendDeviceTest, GraphsAreLimitedAndThoseThatAreGoneMakeRoom) {
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

// An operator whose workspace cannot be had is given up: no document says what else to do with it (F17).
TEST_F(AscendDeviceTest, WhicheverAllocationFailsBehindTheFirstOperatorNothingIsLeft) {
  for (const std::uint64_t seed : {0, 1}) {
    bool done = false;
    std::size_t given_up = 0;
    for (std::uint64_t n = 1; !done; ++n) {
      fail([&](AscendFakeOptions& options) {
        options.seed = seed;
        options.fail_allocation = n;
      });
      ascend::Options options = FakeCard::device_options();
      options.arena_bytes = 64;
      done = complaint(options) == "nothing";
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", allocation " << n);
      EXPECT_THAT(card_.live_objects(), IsEmpty());
      for (const std::string& violation : card_.violations())
        EXPECT_THAT(violation, HasSubstr("(aclDestroyAclOpExecutor): destroys an executor that is not repeatable"));
      given_up += card_.violations().size();
      ASSERT_LT(n, 100u);
    }
    EXPECT_GT(given_up, 0u);
  }
}

TEST_F(AscendDeviceTest, AttentionGoesTheEagerWayWhereTheFusedOperatorRefusesOrIsNotWanted) {
  card_.open_anew();
  Names names = calls(card_);
  const auto fused = std::ranges::find_if(names, [](const std::string& name) { return name.starts_with(kFused); });
  fail([&](AscendFakeOptions& options) {
    options.fail_call = static_cast<std::uint64_t>(fused - names.begin()) + 1;
    options.fail_code = 561003;
  });
  const auto fused_calls = [&] {
    names = calls(card_);
    return std::ranges::count_if(names, [](const std::string& name) { return name.starts_with(kFused); });
  };
  EXPECT_THAT(attended(*ascend::make_device(heard())), testing::Each(2));
  EXPECT_EQ(fused_calls(), 1);
  EXPECT_THAT(remarks_, ElementsAre(HasSubstr("attention goes the eager way")));
  card_.reset(FakeCard::default_options());
  ascend::Options eager = heard();
  eager.fused = false;
  EXPECT_THAT(attended(*ascend::make_device(eager)), testing::Each(2));
  EXPECT_EQ(fused_calls(), 0);
  EXPECT_EQ(remarks_.size(), 1u) << "what is asked for needs no remark";
}

TEST_F(AscendDeviceTest, AMaskThatIsWiderThanTheTableGoesTheEagerWay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();  // which 0 does not make nothing of
  EXPECT_THAT(attended(*card_.open_anew(), 256, kInfinity), testing::Each(2));
}

TEST_F(AscendDeviceTest, AWeightHasTheWidestTypeOfItsParts) {
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

TEST_F(AscendDeviceTest, AnglesOfAStepAreThoseOfThePositionsThatAreAskedFor) {
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
