// What opening an Ascend device finds and says: libraries, versions, cards, and what a card can do.
#include <filesystem>
#include <set>
#include <thread>

#include "device/ascend/testing/ascend_device_fixture.h"
#include "device/cpu/cpu_device.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Names = std::vector<std::string>;
using AscendOpening = AscendDeviceTest;

constexpr std::string_view kFused = "aclnnFusedInferAttentionScore";

std::ptrdiff_t count_of(const Names& names, std::string_view name) {
  return std::ranges::count(names, name);
}

TEST_F(AscendOpening, SaysWhatItIs) {
  const auto device = card_.open_anew();
  EXPECT_EQ(device->name(), "ascend (fake)");
  EXPECT_EQ(device->isa(), "Ascend910B4");
  EXPECT_FALSE(device->row_independent());
  EXPECT_TRUE(device->is_stand_in()) << "it is the fake";
  EXPECT_TRUE(device->prefers_dense_mask() && device->needs_dense_mask() && device->multiplies_hidden_keys());
  EXPECT_EQ(device->row_buckets().front(), 2) << "one row with a mask is silently wrong";
}

TEST_F(AscendOpening, NamesTheLibraryThatIsMissing) {
  ascend::Options nowhere;
  nowhere.library.home = "/nowhere";
  EXPECT_THAT(complaint(nowhere), AllOf(HasSubstr("libascendcl.so was not found"), HasSubstr("set_env.sh")));
  EXPECT_THAT(complaint(with_library("/nowhere/lib.so")), HasSubstr("/nowhere/lib.so: cannot be loaded"));
  EXPECT_THAT(ascend::list_devices(nowhere.library).problem, HasSubstr("libascendcl.so"));
}

TEST_F(AscendOpening, NamesTheDriverThatTheRuntimeOfALaterVersionLacks) {
  ascend::Options options;
  options.library.home = (std::filesystem::path(FakeCard::home()).parent_path() / "no_driver").string();
  EXPECT_THAT(complaint(options), AllOf(HasSubstr("Ascend: the driver is missing: "), HasSubstr("libascend_hal.so")));
  EXPECT_THAT(ascend::list_devices(options.library).problem, HasSubstr("the driver is missing"));
}

TEST_F(AscendOpening, NamesTheLibrariesOfOperatorsThatAreMissing) {
  namespace fs = std::filesystem;
  const fs::path home = fs::path(testing::TempDir()) / "ascend_without_operators";
  fs::remove_all(home);
  fs::create_directories(home / "lib64");
  fs::create_symlink(FakeCard::device_options("ascend_fake_half").library.library, home / "lib64" / "libascendcl.so");
  ascend::Options options;
  options.library.home = home.string();
  EXPECT_THAT(complaint(options),
              AllOf(HasSubstr("aclnnEmbeddingGetWorkspaceSize and 23 other functions are missing"),
                    HasSubstr("libnnopbase.so and libopapi.so were not found"), HasSubstr("set_env.sh")));
  fs::remove_all(home);
}

TEST_F(AscendOpening, NamesTheFunctionsThatAreMissing) {
  EXPECT_THAT(complaint(with_library("libm.so.6")), AllOf(HasSubstr("aclInit and"), HasSubstr("other functions are")));
}

TEST_F(AscendOpening, WithHalfOfTheOperatorsItIsOneErrorAndAnotherDeviceGoesOn) {
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

TEST_F(AscendOpening, EveryVersionOpensAndEveryChipHasTheFusedOperatorThatIsDocumentedForIt) {
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

TEST_F(AscendOpening, FindsLibrariesBelowTheHomeOfCann) {
  card_.reset(FakeCard::default_options());
  ascend::Options options = FakeCard::device_options();
  options.library = {.home = FakeCard::home(), .library = ""};
  EXPECT_EQ(ascend::make_device(options)->name(), "ascend (fake)");
}

TEST_F(AscendOpening, ListsTheCards) {
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

TEST_F(AscendOpening, SaysThatThereIsNoCard) {
  fail([](AscendFakeOptions& options) { options.device_count = 0; });
  EXPECT_THAT(complaint(), HasSubstr("Ascend: no NPU on this machine"));
}

TEST_F(AscendOpening, TellsTheMemoryOfACardThatHasAnotherKindOfIt) {
  fail([](AscendFakeOptions& options) { options.soc_name = "Ascend310P3"; });
  EXPECT_GT(ascend::list_devices(FakeCard::device_options().library).npus.at(0).memory, 0u);
  fail([](AscendFakeOptions& options) {
    options.soc_name = "Ascend310P3";
    options.fail_allocation = 2;
  });
  EXPECT_THAT(complaint(), AllOf(HasSubstr("error 207001: no memory for"), HasSubstr("of 8192.0 MiB are free")));
}

TEST_F(AscendOpening, TwoCardsMayBeOpenAndEachIsGivenBack) {
  fail([](AscendFakeOptions& options) { options.device_count = 2; });
  ascend::Options second = FakeCard::device_options();
  second.index = 1;
  const auto one = ascend::make_device(FakeCard::device_options());
  ascend::make_device(second).reset();
  EXPECT_EQ(count_of(calls(card_), "aclrtSetDevice"), 2);
  EXPECT_EQ(count_of(calls(card_), "aclrtResetDevice"), 1);
  EXPECT_THAT(attended(*one), testing::Each(2));
}

// Resetting a card takes everything on it from whoever else uses it (F3).
TEST_F(AscendOpening, OneCardMayBeOpenTwiceAndIsResetWhenTheLastOneIsClosed) {
  auto one = card_.open_anew();
  const auto resets = [&] { return count_of(calls(card_), "aclrtResetDevice"); };
  {
    const auto other = ascend::make_device(FakeCard::device_options());
    EXPECT_THAT(attended(*other), testing::Each(2));
    EXPECT_THAT(attended(*one), testing::Each(2));
  }
  EXPECT_THAT(attended(*one), testing::Each(2)) << "the other one is closed";
  auto third = ascend::make_device(FakeCard::device_options());
  one.reset();
  EXPECT_THAT(attended(*third), testing::Each(2)) << "the first one is closed";
  EXPECT_EQ(count_of(calls(card_), "aclrtSetDevice"), 1);
  EXPECT_EQ(resets(), 0);
  third.reset();
  EXPECT_EQ(resets(), 1);
}

TEST_F(AscendOpening, CardsAreListedWhileOneIsOpenOnAnotherThread) {
  const auto device = card_.open_anew();
  ascend::Devices found;
  std::thread([&] { found = ascend::list_devices(FakeCard::device_options().library); }).join();
  ASSERT_EQ(found.npus.size(), 1u);
  EXPECT_THAT(found.npus[0].problem, IsEmpty());
  EXPECT_GT(found.npus[0].memory, found.npus[0].free_memory);
  EXPECT_THAT(attended(*device), testing::Each(2));
}

TEST_F(AscendOpening, ACardThatCannotBeSetIsListedWithTheReasonAndMayBeOpenedLater) {
  card_.reset(FakeCard::default_options());
  ascend::list_devices(FakeCard::device_options().library);
  const Names names = calls(card_);
  fail([&](AscendFakeOptions& options) {
    options.fail_call = static_cast<std::uint64_t>(std::ranges::find(names, "aclrtSetDevice") - names.begin()) + 1;
  });
  const ascend::Devices found = ascend::list_devices(FakeCard::device_options().library);
  ASSERT_EQ(found.npus.size(), 1u);
  EXPECT_THAT(found.npus[0].problem, HasSubstr("aclrtSetDevice: error 507015"));
  EXPECT_THAT(found.problem, HasSubstr("NPU 0, NPU: aclrtSetDevice"));
  EXPECT_THAT(attended(*ascend::make_device(FakeCard::device_options())), testing::Each(2));
}

TEST_F(AscendOpening, WhatIsSetIsResetAndAtTheEndTheRuntimeIsShutDown) {
  card_.open_anew().reset();
  ascend::list_devices(FakeCard::device_options().library);
  const Names names = calls(card_);
  EXPECT_GT(count_of(names, "aclrtSetDevice"), 0);
  EXPECT_EQ(count_of(names, "aclrtResetDevice"), count_of(names, "aclrtSetDevice"));
  ascend::shut_down(FakeCard::device_options().library);
  EXPECT_EQ(calls(card_).back(), "aclFinalize");
}

TEST_F(AscendOpening, SumsAreMadeDeterministicBeforeTheFirstOperator) {
  const auto device = card_.open_anew();
  const Names names = calls(card_);
  const auto at = [&](std::string_view name) { return std::ranges::find(names, name) - names.begin(); };
  const auto first = std::ranges::find_if(names, [](const std::string& name) { return name.starts_with("aclnn"); });
  EXPECT_LT(at("aclrtSetSysParamOpt"), first - names.begin());
  EXPECT_LT(at("aclrtCtxSetSysParamOpt"), first - names.begin());
}

TEST_F(AscendOpening, SaysWhatAStubOrAMissingEnvironmentScriptIs) {
  fail([](AscendFakeOptions& options) {
    options.fail_call = 1;
    options.fail_code = 100039;
  });
  EXPECT_THAT(complaint(), AllOf(HasSubstr("aclInit: error 100039"), HasSubstr("stub")));
}

TEST_F(AscendOpening, AttentionGoesTheEagerWayWhereTheFusedOperatorRefusesOrIsNotWanted) {
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
  EXPECT_EQ(fused_calls(), 1 + 2 * 3) << "the refusal, and both phases of three probes over bf16";
  EXPECT_THAT(remarks_, ElementsAre(HasSubstr("attention goes the eager way")));
  card_.reset(FakeCard::default_options());
  ascend::Options eager = heard();
  eager.fused = false;
  EXPECT_THAT(attended(*ascend::make_device(eager)), testing::Each(2));
  EXPECT_EQ(fused_calls(), 0);
  EXPECT_EQ(remarks_.size(), 1u) << "what is asked for needs no remark";
}

// vllm-ascend 15503 is known of a single row; nobody knows whether more rows, or one type of keys, have it too.
TEST_F(AscendOpening, ACardThatForgetsMasksBehindKey512GoesTheEagerWay) {
  const std::int32_t f16 = 1, bf16 = 27;
  const auto remarks_of = [&](std::int32_t rows, std::int32_t type) {
    fail([&](AscendFakeOptions& options) {
      options.mask_ignored_rows = rows;
      options.mask_ignored_type = type;
    });
    remarks_.clear();
    const auto device = ascend::make_device(heard());
    const std::uint64_t opened = card_.counters().calls;
    EXPECT_THAT(attended(*device), testing::Each(2));
    const Names names = calls(card_);
    const bool fuses = std::any_of(names.begin() + static_cast<std::ptrdiff_t>(opened), names.end(),
                                   [](const std::string& name) { return name.starts_with(kFused); });
    EXPECT_EQ(fuses, type == bf16) << "over f16";
    return remarks_;
  };
  const auto over_f16 = HasSubstr("goes the eager way over f16 keys: the fused operator of Ascend910B4");
  const auto over_bf16 = HasSubstr("goes the eager way over bf16 keys: the fused operator of Ascend910B4");
  for (const std::int32_t rows : {2, 16, 512}) EXPECT_THAT(remarks_of(rows, 0), ElementsAre(over_f16, over_bf16));
  EXPECT_THAT(remarks_of(2, f16), ElementsAre(over_f16));
  EXPECT_THAT(remarks_of(2, bf16), ElementsAre(over_bf16));
}

TEST_F(AscendOpening, WithoutItsKernelsItDoesNotOpenAndNamesTheEnvironmentScript) {
  ascend::Options eager = FakeCard::device_options();
  eager.fused = false;
  for (const ascend::Options& way : {FakeCard::device_options(), eager})
    for (const std::int32_t code : {561003, 561107}) {
      fail([&](AscendFakeOptions& options) { options.fail_operators = code; });
      EXPECT_THAT(complaint(way), AllOf(HasSubstr("error " + std::to_string(code)), HasSubstr("set_env.sh")));
      card_.expect_nothing_left();
    }
}

TEST_F(AscendOpening, AnOperatorThatIsNotFoundIsNotDoneWithout) {
  card_.open_anew();
  const Names names = calls(card_);
  for (const std::string_view prefix : {std::string_view("aclnnMm"), kFused}) {
    const auto first = std::ranges::find_if(names, [&](const std::string& name) { return name.starts_with(prefix); });
    fail([&](AscendFakeOptions& options) {
      options.fail_call = static_cast<std::uint64_t>(first - names.begin()) + 1;
      options.fail_code = 561107;
    });
    EXPECT_THAT(complaint(), AllOf(HasSubstr("error 561107"), HasSubstr("set_env.sh")));
  }
}

TEST_F(AscendOpening, ProductsAreRightWhereTheyCanOnlyBeWrittenIn16Bits) {
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

}  // namespace
}  // namespace espalier
