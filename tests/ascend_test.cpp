// The whole engine through the calls that an Ascend card would see, on the recording fake of its API: tiny models of
// every family, plain and with drafts, captured and not, fused and eager. Where the fake's sums have one order,
// whatever the number of rows, speculation changes no token; where they have not, only one between two that are nearly
// equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "decode/batch.h"
#include "decode/eagle3_drafter.h"
#include "decode/hostile_drafter.h"
#include "decode/medusa_drafter.h"
#include "decode/model_drafter.h"
#include "decode/ngram_drafter.h"
#include "device/conformance/fake_card.h"
#include "device/cpu/cpu_device.h"
#include "testing/company.h"
#include "testing/engine.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kContext = 200;
constexpr std::int64_t kAnswer = 24;

// Longer than a block of the cache, and it repeats itself, so that lookup has something to find.
Tokens prompt_of(const Transformer& model) {
  Tokens prompt;
  const std::int64_t vocabulary = model.config().vocabulary;
  for (std::int64_t i = 0; i < 135; ++i)
    prompt.push_back(static_cast<std::int32_t>((i % 9 * 31 + i / 50) % vocabulary));
  return prompt;
}

struct Way {
  std::string drafter = "none";
  TreeShape shape = TreeShape::dynamic;
  AttentionOp attention = AttentionOp::fused;
  DType kv_type = DType::f16;
};

std::unique_ptr<Drafter> make_drafter(const Way& way, const Company& company, KvCache& cache, int sequences,
                                      const TreeOptions& tree) {
  const StepForm form{way.attention, MaskForm::dense};
  if (way.drafter == "ngram") return std::make_unique<NgramDrafter>();
  if (way.drafter == "hostile")
    return std::make_unique<HostileDrafter>(7, static_cast<std::int32_t>(company.teacher.config().vocabulary));
  if (way.drafter == "medusa") return std::make_unique<MedusaDrafter>(*company.medusa_head, 10, sequences);
  if (way.drafter == "eagle3")
    return std::make_unique<Eagle3Drafter>(
        *company.eagle3_head, cache,
        Eagle3DrafterOptions{
            .context = kContext, .kv_type = way.kv_type, .form = form, .tree = tree, .sequences = sequences});
  return std::make_unique<ModelDrafter>(
      company.draft_model(), cache,
      ModelDrafterOptions{
          .context = kContext, .kv_type = way.kv_type, .form = form, .tree = tree, .sequences = sequences});
}

TreeOptions tree_of(const Way& way) {
  TreeOptions tree{.shape = way.shape, .nodes = 12, .depth = 5, .expand = 3};
  if (way.shape == TreeShape::fixed)
    tree.choices = ChoiceTree({{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {0, 0, 0}}, {}, "choices");
  return tree;
}

Tokens answer(const Company& company, const Way& way) {
  DecoderOptions options;
  options.context = kContext;
  options.kv_type = way.kv_type;
  options.attention = way.attention;
  Speculation speculation;
  speculation.tree = tree_of(way);
  if (way.drafter != "none")
    speculation.drafters = [&](KvCache& cache, int sequences) {
      DrafterSet set;
      set.push_back(make_drafter(way, company, cache, sequences, speculation.tree));
      return set;
    };
  Batch batch(company.teacher, options, speculation);
  return batch.generate(prompt_of(company.teacher), {.max_tokens = kAnswer}).tokens;
}

// The logits of every position of a text.
std::vector<std::vector<float>> scores(const Transformer& model, const Tokens& text) {
  DecoderOptions options;
  options.context = kContext;
  Batch batch(model, options);
  std::vector<std::vector<float>> rows;
  batch.score(text,
              [&](std::int64_t, std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); });
  return rows;
}

// Where two texts part, the CPU's logits of their tokens are no further apart than twice what the devices' logits are.
void expect_equal_outside_near_ties(const Tokens& one, const Tokens& other, const Transformer& on_npu,
                                    const Transformer& on_cpu) {
  if (one == other) return;
  const auto at =
      static_cast<std::size_t>(std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin());
  ASSERT_LT(at, std::min(one.size(), other.size()));
  Tokens text = prompt_of(on_cpu);
  text.insert(text.end(), one.begin(), one.begin() + static_cast<std::ptrdiff_t>(at));
  const auto exact = scores(on_cpu, text), near = scores(on_npu, text);
  float apart = 0, largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    apart = std::max(apart, largest_difference(exact[i], near[i]));
    for (float logit : exact[i]) largest = std::max(largest, std::fabs(logit));
  }
  const std::vector<float>& logits = exact.back();
  const float margin =
      std::fabs(logits[static_cast<std::size_t>(one[at])] - logits[static_cast<std::size_t>(other[at])]);
  EXPECT_LE(margin, 2 * apart) << "at token " << at;
  EXPECT_LT(apart, largest / 10) << "the devices' logits are far apart";
}

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

TEST_F(AscendEngine, TextsOfEveryFamilyAreThoseOfTheCpuOutsideNearTies) {
  const auto cpu = make_cpu_device({.threads = 1});
  for (const std::string& family : tiny_families())
    for (const AttentionOp attention : {AttentionOp::fused, AttentionOp::eager}) {
      SCOPED_TRACE(family);
      const auto npu = open(seeded(0));
      const Company on_cpu(*cpu, {family}), on_npu(*npu, {family});
      expect_equal_outside_near_ties(answer(on_cpu, {.attention = attention}), answer(on_npu, {.attention = attention}),
                                     on_npu.teacher, on_cpu.teacher);
    }
}

TEST_F(AscendEngine, WhereSumsHaveOneOrderSpeculationChangesNoToken) {
  const auto npu = open(seeded(0));
  const Company company(*npu, {"llama3"});
  for (const AttentionOp attention : {AttentionOp::fused, AttentionOp::eager}) {
    const Tokens plain = answer(company, {.attention = attention});
    for (const char* drafter : {"ngram", "medusa", "eagle3", "model", "hostile"})
      for (const TreeShape shape : {TreeShape::chain, TreeShape::fixed, TreeShape::dynamic}) {
        if (kSanitized && attention == AttentionOp::eager && shape != TreeShape::dynamic) continue;
        SCOPED_TRACE(::testing::Message() << drafter << ", " << name(shape));
        EXPECT_EQ(answer(company, {drafter, shape, attention}), plain);
      }
  }
}

TEST_F(AscendEngine, WhereSumsDependOnRowsSpeculationChangesTokensOnlyAtNearTies) {
  const auto cpu = make_cpu_device({.threads = 1});
  const Company on_cpu(*cpu, {"qwen3"});
  for (std::uint64_t seed : {3, 4}) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const auto npu = open(seeded(seed));
    const Company on_npu(*npu, {"qwen3"});
    const Tokens plain = answer(on_npu, {});
    for (const char* drafter : {"ngram", "eagle3", "hostile"})
      expect_equal_outside_near_ties(plain, answer(on_npu, {drafter}), on_npu.teacher, on_cpu.teacher);
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
          Batch(model, {.context = kContext, .attention = attention}).generate(prompt, {.max_tokens = 8}).tokens);
    }
    Batch batch(model, {.context = kContext, .parallel = 3, .attention = attention});
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
  EXPECT_EQ(answer(Company(*cpu, {"llama2"}), {}).size(), static_cast<std::size_t>(kAnswer));
}

TEST_F(AscendEngine, WhicheverAllocationFailsItIsOneErrorAndNothingIsLeft) {
  std::uint64_t failed = 0;
  for (bool done = false; !done; ++failed) {
    AscendFakeOptions failing = seeded(0);
    failing.fail_allocation = failed + 1;
    try {
      const auto npu = open(failing);
      const Transformer model = load_tiny(*npu, {"llama2"});
      Batch batch(model, {.context = kContext});
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
