// The whole engine through the calls that an Ascend card would see, on the recording fake of its API: plain and with
// drafts, captured and not, fused and eager. Where the fake's sums have one order, whatever the number of rows,
// speculation changes no token; where they have not, near_tie_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "device/conformance/fake_card.h"
#include "device/cpu/cpu_device.h"
#include "testing/company.h"
#include "testing/ways.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

class AscendEngine : public ::testing::Test {
 protected:
  // A device on a fake that begins anew.
  std::unique_ptr<Device> open(AscendFakeOptions fake, ascend::Options options = FakeCard::device_options()) {
    card_.reset(fake);
    options.remark = [this](std::string_view line) { remarks_.emplace_back(line); };
    return ascend::make_device(options);
  }
  static AscendFakeOptions seeded(std::uint64_t seed) {
    AscendFakeOptions options = FakeCard::default_options();
    options.seed = seed;
    return options;
  }
  static ascend::Options unrecorded() {
    ascend::Options options = FakeCard::device_options();
    options.recorded = false;
    return options;
  }
  void TearDown() override { card_.expect_nothing_left(); }

  FakeCard card_;
  std::vector<std::string> remarks_;
};

TEST_F(AscendEngine, WhereSumsHaveOneOrderSpeculationChangesNoToken) {
  const auto npu = open(seeded(0));
  const Company company(*npu, {"llama3"});
  for (const AttentionOp attention : {AttentionOp::fused, AttentionOp::eager}) {
    const Tokens plain = answer(company, {.attention = attention});
    for (const char* drafter : {"ngram", "medusa", "eagle3", "model", "hostile"})
      for (const TreeShape shape : {TreeShape::chain, TreeShape::fixed, TreeShape::dynamic}) {
        // Steps go through the same code whoever drafts: sanitizers see each drafter once, and one of them every way.
        const bool first_way = shape == TreeShape::dynamic && attention == AttentionOp::fused;
        if (kSanitized && !first_way && std::string(drafter) != "eagle3") continue;
        SCOPED_TRACE(::testing::Message() << drafter << ", " << name(shape));
        EXPECT_EQ(answer(company, {drafter, shape, attention}), plain);
      }
  }
}

TEST_F(AscendEngine, WhereSumsHaveOneOrderAnAnswerInCompanyIsTheOneGivenAlone) {
  const auto npu = open(seeded(0));
  const Transformer model = load_tiny(*npu, {"llama3"});
  for (const AttentionOp attention : {AttentionOp::fused, AttentionOp::eager}) {
    std::vector<Tokens> prompts, alone;
    for (std::size_t length : {3, 70, 131}) {
      Tokens& prompt = prompts.emplace_back(prompt_of(model));
      prompt.resize(length);
      alone.push_back(
          Batch(model, {.context = kWayContext, .attention = attention}).generate(prompt, {.max_tokens = 8}).tokens);
    }
    Batch batch(model, {.context = kWayContext, .parallel = 3, .attention = attention});
    std::vector<GenerateRequest> requests;
    for (const Tokens& prompt : prompts) requests.push_back({.prompt = prompt, .options = {.max_tokens = 8}});
    const std::vector<GenerateResult> together = batch.generate(requests);
    for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i].tokens, alone[i]);
  }
}

TEST_F(AscendEngine, ARecordedStepGivesWhatItsOpsGive) {
  Tokens op_by_op;
  {
    const auto npu = open(seeded(0), unrecorded());
    op_by_op = answer(Company(*npu, {"smollm2"}), {"ngram"});
    EXPECT_EQ(card_.counters().captures, 0u);
  }
  const auto npu = open(seeded(0));
  EXPECT_EQ(answer(Company(*npu, {"smollm2"}), {"ngram"}), op_by_op);
  EXPECT_GT(card_.counters().captures, 0u);
  EXPECT_GT(card_.counters().replays, card_.counters().captures);
  EXPECT_TRUE(remarks_.empty());
}

TEST_F(AscendEngine, OutOfStreamsItGoesOnOpByOpAndSaysSoOnce) {
  AscendFakeOptions few = seeded(0);
  few.graph_limit = 1;
  const auto npu = open(few);
  const Company company(*npu, {"smollm2"});
  const Tokens drafted = answer(company, {"ngram"});
  EXPECT_EQ(answer(company, {}), drafted);
  ASSERT_EQ(remarks_.size(), 1u);
  EXPECT_THAT(remarks_[0], HasSubstr("no stream left"));
}

TEST_F(AscendEngine, KvOfEveryTypeAndEveryChipGivesATextOfItsOwnTwice) {
  for (const char* chip : {"Ascend910B4", "Ascend910_9391", "Ascend950PR", "Ascend310P3"})
    for (const DType type : {DType::f16, DType::bf16, DType::f32}) {
      if (type == DType::bf16 && std::string(chip) == "Ascend310P3") continue;
      if (kSanitized && type != DType::f16 && std::string(chip) != "Ascend910B4") continue;
      SCOPED_TRACE(::testing::Message() << chip << ", KV " << espalier::name(type));
      AscendFakeOptions options = seeded(0);
      options.soc_name = chip;
      const auto npu = open(options);
      const Company company(*npu, {"llama2"});
      const Tokens plain = answer(company, {.kv_type = type});
      EXPECT_EQ(answer(company, {.drafter = "ngram", .kv_type = type}), plain);
    }
}

// --- faults ----------------------------------------------------------------------------------------------------------
TEST_F(AscendEngine, ACardLostInTheMiddleOfAnAnswerIsOneErrorAndAnotherDeviceGoesOn) {
  std::uint64_t calls = 0;
  {
    const auto npu = open(seeded(0));
    const Company company(*npu, {"llama2"});
    const std::uint64_t before = card_.counters().calls;
    answer(company, {"ngram"});
    calls = (before + card_.counters().calls) / 2;
  }
  AscendFakeOptions lost = seeded(0);
  lost.lose_device_at_call = calls;
  {
    const auto npu = open(lost);
    const Company company(*npu, {"llama2"});
    try {
      answer(company, {"ngram"});
      ADD_FAILURE() << "nothing was said";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Ascend: acl"));
      EXPECT_THAT(error.what(), HasSubstr("error "));
    }
  }
  const auto cpu = make_cpu_device({.threads = 1});
  EXPECT_EQ(answer(Company(*cpu, {"llama2"}), {}).size(), static_cast<std::size_t>(kWayAnswer));
}

TEST_F(AscendEngine, WhicheverAllocationFailsItIsOneErrorAndNothingIsLeft) {
  std::uint64_t failed = 0;
  for (bool done = false; !done; ++failed) {
    AscendFakeOptions failing = seeded(0);
    failing.fail_allocation = failed + 1;
    try {
      const auto npu = open(failing);
      const Transformer model = load_tiny(*npu, {"llama2"});
      Batch batch(model, {.context = kWayContext});
      batch.generate(prompt_of(model), {.max_tokens = 3});
      done = true;
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("error 207001"));
    }
    card_.expect_nothing_left();
    ASSERT_LT(failed, 2000u);
  }
  EXPECT_GT(failed, 20u);
}

}  // namespace
}  // namespace espalier::testing
