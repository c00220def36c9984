// The whole engine through the calls that an Ascend card would see, on the recording fake of its API: plain and with
// drafts, captured and not, fused and eager. Where the fake's sums have one order, whatever the number of rows,
// speculation changes no token and no bit of the cache; where they have not, near_tie_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/ngram_drafter.h"
#include "device/conformance/fake_card.h"
#include "device/cpu/cpu_device.h"
#include "testing/company.h"
#include "testing/ended_answer.h"
#include "testing/engine.h"
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
  // Every step-th allocation of these fails, one at a time; how many there are.
  std::uint64_t fail_allocations(std::uint64_t step, const std::function<void(Device&)>& work) {
    for (std::uint64_t failed = 0; failed < 4000; failed += step) {
      AscendFakeOptions failing = seeded(0);
      failing.fail_allocation = failed + 1;
      bool done = false;
      try {
        const auto npu = open(failing);
        work(*npu);
        done = true;
      } catch (const DeviceError& error) {
        EXPECT_THAT(error.what(), HasSubstr("error 207001"));
      }
      card_.expect_nothing_left();
      if (done) return failed;
    }
    ADD_FAILURE() << "there is no end of allocations";
    return 0;
  }
  void TearDown() override { card_.expect_nothing_left(); }

  FakeCard card_;
  std::vector<std::string> remarks_;
};

// --- speculation changes no bit --------------------------------------------------------------------------------------
constexpr const char* kDrafters[] = {"ngram", "medusa", "eagle2", "eagle3", "model", "hostile"};
constexpr TreeShape kShapes[] = {TreeShape::chain, TreeShape::fixed, TreeShape::dynamic};
constexpr AttentionOp kAttentions[] = {AttentionOp::fused, AttentionOp::eager};

// The same tokens and, for all of them but the last, the same bits in the cache.
void expect_same_bits(const EndedAnswer& drafted, const EndedAnswer& plain) {
  ASSERT_TRUE(drafted.ended && plain.ended);
  EXPECT_EQ(drafted.result.tokens, plain.result.tokens);
  EXPECT_EQ(drafted.length, plain.length);
  ASSERT_FALSE(plain.kv.empty());
  ASSERT_EQ(drafted.kv.size(), plain.kv.size());
  const auto differs = std::ranges::mismatch(drafted.kv, plain.kv).in1 - drafted.kv.begin();
  EXPECT_EQ(differs, std::ssize(plain.kv)) << "byte " << differs << " of the cache";
}

std::string described(const Way& way) {
  return way.drafter + ", " + std::string(name(way.shape)) + (way.attention == AttentionOp::fused ? "" : ", eager");
}

TEST_F(AscendEngine, WhereSumsHaveOneOrderSpeculationChangesNoBit) {
  const auto npu = open(seeded(0));
  const Company company(*npu, {"llama3"});
  for (const AttentionOp attention : kAttentions) {
    const EndedAnswer plain = ended_answer(company, {.attention = attention});
    for (const char* drafter : kDrafters)
      for (const TreeShape shape : kShapes) {
        // Steps go through the same code whoever drafts: sanitizers see each drafter once, and one of them every way.
        const bool first_way = shape == TreeShape::dynamic && attention == AttentionOp::fused;
        if (kSanitized && !first_way && std::string(drafter) != "eagle3") continue;
        // AscendFamily has all of them.
        const bool every_shape =
            attention == AttentionOp::fused && (drafter == kDrafters[0] || drafter == kDrafters[3]);
        if (shape != TreeShape::dynamic && !every_shape) continue;
        const Way way{drafter, shape, attention};
        SCOPED_TRACE(described(way));
        expect_same_bits(ended_answer(company, way), plain);
      }
  }
}

TEST_F(AscendEngine, WhereTheOrderOfSumsDependsOnRowsBitsOfTheCacheMayDiffer) {
  const auto npu = open(seeded(3));
  const Company company(*npu, {"llama2"});
  EXPECT_NE(ended_answer(company, {"hostile"}).kv, ended_answer(company, {}).kv);
}

class AscendFamilies : public AscendEngine {
 protected:
  // Of a family with these ways, each against the plain answer with the same attention.
  void expect_same_bits_in(const std::string& family, bool recorded, const std::vector<Way>& ways) {
    const auto npu = open(seeded(0), recorded ? FakeCard::device_options() : unrecorded());
    const Company company(*npu, {family});
    std::map<AttentionOp, EndedAnswer> plain;
    for (const Way& way : ways) {
      SCOPED_TRACE(family + ", " + described(way) + (recorded ? "" : ", op by op"));
      if (!plain[way.attention].ended) plain[way.attention] = ended_answer(company, {.attention = way.attention});
      expect_same_bits(ended_answer(company, way), plain[way.attention]);
    }
  }
};

// Drafters, trees and attentions take turns, so that each of them meets each of the others in one family or another.
TEST_F(AscendFamilies, SpeculationChangesNoBitOfAnyFamily) {
  constexpr std::size_t drafters = std::size(kDrafters);
  std::size_t turn = 0;
  bool recorded = false;
  for (const std::string& family : tiny_families()) {
    recorded = !recorded;
    std::vector<Way> ways;
    for (int i = 0; i < (kSanitized ? 1 : 2); ++i, ++turn)
      ways.push_back({kDrafters[turn % drafters], kShapes[(turn + turn / drafters) % 3], kAttentions[turn / 2 % 2]});
    expect_same_bits_in(family, recorded, ways);
  }
}

class AscendFamily : public AscendFamilies, public ::testing::WithParamInterface<std::string> {};

TEST_P(AscendFamily, NoWayOfSpeculationChangesABit) {
  if (kSanitized) GTEST_SKIP() << "the code of a few ways is that of all";
  for (const bool recorded : {true, false}) {
    std::vector<Way> ways;
    for (const char* drafter : kDrafters)
      for (const TreeShape shape : kShapes)
        for (const AttentionOp attention : kAttentions) ways.push_back({drafter, shape, attention});
    expect_same_bits_in(GetParam(), recorded, ways);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, AscendFamily, ::testing::ValuesIn(tiny_families()),
                         [](const auto& family) { return family.param; });

// --- company and recording -------------------------------------------------------------------------------------------
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

TEST_F(AscendEngine, NothingIsTimedOnAFake) {
  const auto npu = open(seeded(0));
  const GenerateResult result = ended_answer(Company(*npu, {"llama2"}), {"ngram"}).result;
  EXPECT_EQ(result.tokens.size(), static_cast<std::size_t>(kWayAnswer));
  EXPECT_EQ(result.prefill_seconds + result.decode_seconds + result.times.sum(), 0);
  const auto cpu = make_cpu_device({.threads = 1});
  EXPECT_GT(ended_answer(Company(*cpu, {"llama2"}), {"ngram"}).result.decode_seconds, 0);
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

// --- what a warm engine does no more (F53 to F58)
// --------------------------------------------------------------------- A decoder that guesses by lookup, or not at
// all.
Speculation lookup_or_none(bool drafted) {
  Speculation speculation;
  if (drafted)
    speculation.drafters = [](KvCache&, int) {
      DrafterSet set;
      set.push_back(std::make_unique<NgramDrafter>());
      return set;
    };
  return speculation;
}

class AscendWarmth : public AscendEngine, public ::testing::WithParamInterface<bool> {};

TEST_P(AscendWarmth, AnAnswerTakesNoMemoryMeetsNoNewShapeAndWaitsOnlyWhereItIsAsked) {
  const auto npu = open(seeded(0));
  const Transformer model = load_tiny(*npu, {"llama3"});
  Batch batch(model, {.context = kWayContext}, lookup_or_none(GetParam()));
  const auto answered = [&] { return batch.generate(prompt_of(model), {.max_tokens = kWayAnswer}).tokens; };
  const Tokens tokens = answered();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(answered(), tokens);  // captured, and replayed once
  card_.warm();
  const AscendFakeCounters before = card_.counters();
  EXPECT_EQ(answered(), tokens);
  const AscendFakeCounters after = card_.counters();
  EXPECT_EQ(after.allocations_after_warm, 0u);
  EXPECT_EQ(after.shapes_after_warm, 0u);
  EXPECT_EQ(after.hidden_synchronisations, 0u);
  EXPECT_EQ(after.internal_copies, 0u) << "of strided operands, in no step at all";
  for (std::uint64_t n = before.calls + 1; n <= after.calls; ++n)
    EXPECT_THAT(card_.call(n), ::testing::Not(::testing::AnyOf(HasSubstr("aclnnMm"), HasSubstr("aclnnRmsNorm"))))
        << "steps are replayed: only what is chosen from their logits is planned";
  EXPECT_EQ(after.captures, before.captures);
  EXPECT_GT(after.replays, before.replays);
  const std::uint64_t steps = after.replays - before.replays;
  EXPECT_LE(after.synchronisations - before.synchronisations, 2 * steps) << "to read what a step has chosen";
  EXPECT_LT(after.bytes_to_host - before.bytes_to_host, before.bytes_to_host) << "no cache and no weight comes back";
}

// Keys of steps are a bucket of rows and a width of the context, of which there are two in this context.
TEST_P(AscendWarmth, NoKeyIsCapturedTwice) {
  const auto npu = open(seeded(0));
  const Transformer model = load_tiny(*npu, {"llama3"});
  Batch batch(model, {.context = kWayContext}, lookup_or_none(GetParam()));
  for (const std::size_t length : {3, 20, 60, 131, 3, 20, 60, 131}) {
    Tokens prompt = prompt_of(model);
    prompt.resize(length);
    batch.generate(prompt, {.max_tokens = kWayAnswer});
  }
  const std::uint64_t keys = 2 * npu->row_buckets().size();
  EXPECT_GT(card_.counters().captures, 0u);
  EXPECT_LE(card_.counters().captures, keys);
  EXPECT_GT(card_.counters().replays, card_.counters().captures);
}

INSTANTIATE_TEST_SUITE_P(Decoders, AscendWarmth, ::testing::Bool(),
                         [](const auto& drafted) { return drafted.param ? "drafted" : "plain"; });

// --- faults ----------------------------------------------------------------------------------------------------------
class AscendLoss : public AscendEngine {
 protected:
  using Answering = std::function<void(const Transformer&)>;
  // The calls that an answer makes: how many were before it, and their names.
  struct Calls {
    std::uint64_t before = 0;
    std::vector<std::string> names = {};
    // The number of the first one of this name.
    std::uint64_t first(std::string_view name) const {
      return before + 1 + static_cast<std::uint64_t>(std::ranges::find(names, name) - names.begin());
    }
    std::uint64_t last() const { return before + names.size(); }
  };
  Calls calls_of(const Answering& answering) {
    const auto npu = open(seeded(0));
    const Transformer model = load_tiny(*npu, {"llama2"});
    Calls calls{.before = card_.counters().calls};
    answering(model);
    for (std::uint64_t n = calls.before + 1; n <= card_.counters().calls; ++n) calls.names.push_back(card_.call(n));
    return calls;
  }
  // The card is lost from this call on.
  void expect_one_error(std::uint64_t call, const Answering& answering) {
    SCOPED_TRACE(::testing::Message() << "lost at call " << call);
    AscendFakeOptions lost = seeded(0);
    lost.lose_device_at_call = call;
    {
      const auto npu = open(lost);
      const Transformer model = load_tiny(*npu, {"llama2"});
      try {
        answering(model);
        ADD_FAILURE() << "nothing was said";
      } catch (const DeviceError& error) {
        EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr("Ascend: acl"), HasSubstr("error ")));
      }
    }
    card_.expect_nothing_left();
  }
  void expect_one_error_wherever(const Answering& answering) {
    const Calls calls = calls_of(answering);
    const std::uint64_t step = std::max<std::uint64_t>(1, calls.names.size() / (kSanitized ? 5 : 15));
    for (std::uint64_t n = calls.before + 1; n + step <= calls.last(); n += step) expect_one_error(n, answering);
  }
  static void answer_alone(const Transformer& model, bool drafted) {
    Batch(model, {.context = kWayContext}, lookup_or_none(drafted)).generate(prompt_of(model), {.max_tokens = 8});
  }
};

TEST_F(AscendLoss, WhereverACardIsLostInAPlainAnswerItIsOneError) {
  expect_one_error_wherever([](const Transformer& model) { answer_alone(model, false); });
}

TEST_F(AscendLoss, WhereverACardIsLostInADraftedAnswerItIsOneError) {
  expect_one_error_wherever([](const Transformer& model) { answer_alone(model, true); });
}

TEST_F(AscendLoss, ACardLostWhileAStepIsCapturedIsOneError) {
  const Answering answering = [](const Transformer& model) { answer_alone(model, true); };
  const Calls calls = calls_of(answering);
  const std::uint64_t begin = calls.first("aclmdlRICaptureBegin"), end = calls.first("aclmdlRICaptureEnd");
  ASSERT_LT(begin, end);
  ASSERT_LT(end, calls.last());
  for (const std::uint64_t n : {begin, begin + 1, begin + 2, (begin + end) / 2, end - 1, end, end + 1})
    expect_one_error(n, answering);
}

TEST_F(AscendLoss, WhereverACardIsLostInCompanyItIsOneError) {
  expect_one_error_wherever([](const Transformer& model) {
    std::vector<Tokens> prompts;
    std::vector<GenerateRequest> requests;
    for (const std::size_t length : {3, 70, 131}) prompts.emplace_back(prompt_of(model)).resize(length);
    for (const Tokens& prompt : prompts) requests.push_back({.prompt = prompt, .options = {.max_tokens = 5}});
    Batch(model, {.context = kWayContext, .parallel = 3}, lookup_or_none(true)).generate(requests);
  });
}

TEST_F(AscendLoss, AnotherDeviceGoesOnWhenACardIsLost) {
  const Answering answering = [](const Transformer& model) { answer_alone(model, true); };
  const Calls calls = calls_of(answering);
  expect_one_error((calls.before + calls.last()) / 2, answering);
  const auto cpu = make_cpu_device({.threads = 1});
  EXPECT_EQ(answer(Company(*cpu, {"llama2"}), {}).size(), static_cast<std::size_t>(kWayAnswer));
}

TEST_F(AscendEngine, WhicheverAllocationFailsItIsOneErrorAndNothingIsLeft) {
  const std::uint64_t allocations = fail_allocations(1, [](Device& npu) {
    const Transformer model = load_tiny(npu, {"llama2"});
    Batch(model, {.context = kWayContext}).generate(prompt_of(model), {.max_tokens = 3});
  });
  EXPECT_GT(allocations, 20u);
}

// Heads and drafters have memory of their own. AscendFamily has every allocation of every drafter.
TEST_F(AscendEngine, WhicheverAllocationFailsWithADrafterItIsOneErrorAndNothingIsLeft) {
  const std::uint64_t allocations =
      fail_allocations(kSanitized ? 41 : 9, [](Device& npu) { answer(Company(npu, {"llama2"}), {"eagle3"}); });
  EXPECT_GT(allocations, 60u);
}

TEST_P(AscendFamily, WhicheverAllocationFailsWithWhicheverDrafterItIsOneErrorAndNothingIsLeft) {
  if (kSanitized) GTEST_SKIP() << "the code of a few is that of all";
  for (const char* drafter : kDrafters) {
    SCOPED_TRACE(drafter);
    const std::uint64_t allocations = fail_allocations(
        1, [&](Device& npu) { answer(Company(npu, {GetParam()}), {.drafter = drafter, .tokens = 3}); });
    EXPECT_GT(allocations, 60u);
  }
}

}  // namespace
}  // namespace espalier::testing
