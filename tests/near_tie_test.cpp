// Devices whose rows are not independent: neither the device nor speculation changes a token, but between two that are
// nearly equal. Judges the device that the environment names (`espalier selftest`), else the recording fake of the
// Ascend API, with sums whose order depends on rows. What was equal and what parted is recorded for the report.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>

#include "base/testing/judged_device.h"
#include "device/conformance/fake_card.h"
#include "device/cpu/cpu_device.h"
#include "testing/engine.h"
#include "testing/ways.h"

namespace espalier::testing {
namespace {

constexpr std::uint64_t kOneOrder = 0;
constexpr std::int64_t kLongAnswer = 60;
constexpr const char* kDrafters[] = {"ngram", "medusa", "eagle2", "eagle3", "model", "hostile"};

class NearTies : public ::testing::Test {
 protected:
  // The judged device, or the fake under this seed; not recorded: it has no stream for a graph.
  std::unique_ptr<Device> open(std::uint64_t seed, bool recorded = true) {
    if (judged_device()) return all_devices()[0].make(1);
    if (!card_) card_.emplace();
    AscendFakeOptions options = FakeCard::default_options();
    options.seed = seed;
    if (!recorded) options.graph_limit = 0;
    card_->reset(options);
    return ascend::make_device(FakeCard::device_options());
  }
  // What the fake has in many orders a card has in one.
  static std::vector<std::uint64_t> seeds() {
    return judged_device() ? std::vector<std::uint64_t>{kOneOrder} : std::vector<std::uint64_t>{3, 4};
  }
  // A card has time for all of them.
  static std::vector<Way> ways() {
    if (!judged_device()) return {{"ngram"}, {"eagle2"}, {"eagle3"}, {"hostile"}};
    return all_ways();
  }
  static std::vector<Way> all_ways() {
    std::vector<Way> all;
    for (const char* drafter : kDrafters)
      for (const TreeShape shape : {TreeShape::chain, TreeShape::fixed, TreeShape::dynamic})
        for (const AttentionOp attention : {AttentionOp::fused, AttentionOp::eager})
          all.push_back({drafter, shape, attention});
    return all;
  }
  // Every way, against the plain answer with the same attention.
  void expect_near_plain(const std::vector<Way>& ways, const Company& on_npu, const Company& on_cpu) {
    std::map<AttentionOp, Tokens> plain;
    for (const Way& way : ways) {
      SCOPED_TRACE(::testing::Message() << way.drafter << ", " << name(way.shape));
      if (plain[way.attention].empty()) plain[way.attention] = answer(on_npu, {.attention = way.attention});
      expect_near(plain[way.attention], answer(on_npu, way), on_npu, on_cpu);
    }
  }
  void expect_near(const Tokens& one, const Tokens& other, const Company& on_npu, const Company& on_cpu) {
    expect_equal_outside_near_ties(one, other, on_npu.teacher, on_cpu.teacher, agreement_);
  }
  void TearDown() override {
    if (card_) card_->expect_nothing_left();
    RecordProperty("answers_equal", agreement_.equal);
    RecordProperty("near_tie_margins", fmt::format("{}", fmt::join(agreement_.margins, " ")));
    fmt::print("{} answers equal, {} part at near-ties{}{:.4f}\n", agreement_.equal, agreement_.margins.size(),
               agreement_.margins.empty() ? "" : ", margins ", fmt::join(agreement_.margins, " "));
  }

  std::unique_ptr<Device> cpu_ = make_cpu_device({.threads = 1});
  std::optional<FakeCard> card_;
  Agreement agreement_;
};

TEST_F(NearTies, TextsOfEveryFamilyAreThoseOfTheCpu) {
  for (const std::string& family : tiny_families()) {
    const auto npu = open(kOneOrder);
    if (npu->row_independent()) GTEST_SKIP() << "its rows are independent: lossless_test is stricter";
    const Company on_cpu(*cpu_, {family}), on_npu(*npu, {family});
    for (const AttentionOp attention : {AttentionOp::fused, AttentionOp::eager}) {
      if (kSanitized && attention == AttentionOp::eager && family != "qwen3") continue;  // the same code
      SCOPED_TRACE(family);
      expect_near(answer(on_cpu, {.attention = attention}), answer(on_npu, {.attention = attention}), on_npu, on_cpu);
    }
  }
}

TEST_F(NearTies, SpeculationChangesNoToken) {
  const Company on_cpu(*cpu_, {"qwen3"});
  for (const std::uint64_t seed : seeds()) {
    const auto npu = open(seed);
    if (npu->row_independent()) GTEST_SKIP() << "its rows are independent: lossless_test is stricter";
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    expect_near_plain(ways(), Company(*npu, {"qwen3"}), on_cpu);
  }
}

// One order of sums for each number of rows.
class EveryFamily : public NearTies, public ::testing::WithParamInterface<std::string> {
 protected:
  static constexpr std::uint64_t kSeed = 3;
};

TEST_P(EveryFamily, NoWayOfSpeculationChangesAToken) {
  if (kSanitized) GTEST_SKIP() << "the code of a few ways is that of all";
  if (judged_device()) GTEST_SKIP() << "a judged device has every way in one family";
  for (const bool recorded : {true, false}) {
    SCOPED_TRACE(recorded ? "captured" : "op by op");
    const auto npu = open(kSeed, recorded);
    expect_near_plain(all_ways(), Company(*npu, {GetParam()}), Company(*cpu_, {GetParam()}));
  }
}

TEST_P(EveryFamily, NoDrafterChangesATokenOfALongerAnswer) {
  if (kSanitized) GTEST_SKIP() << "the code of a few ways is that of all";
  const auto npu = open(kSeed);
  if (npu->row_independent()) GTEST_SKIP() << "its rows are independent: lossless_test is stricter";
  if (judged_device() && npu->is_stand_in()) GTEST_SKIP() << "on a stand-in this is for make test-slow";
  const Company on_cpu(*cpu_, {GetParam()}), on_npu(*npu, {GetParam()});
  const Tokens plain = answer(on_npu, {.tokens = kLongAnswer});
  for (const char* drafter : kDrafters) {
    SCOPED_TRACE(drafter);
    expect_near(plain, answer(on_npu, {.drafter = drafter, .tokens = kLongAnswer}), on_npu, on_cpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, ::testing::ValuesIn(tiny_families()),
                         [](const auto& family) { return family.param; });

}  // namespace
}  // namespace espalier::testing
