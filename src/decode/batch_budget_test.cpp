// A batch that knows what steps cost: what it chooses to draft, and how long prompts may keep others waiting.
#include <gtest/gtest.h>

#include "decode/batch.h"
#include "decode/hostile_drafter.h"
#include "decode/testing/speculative_batch.h"

namespace espalier {
namespace {

class BatchWithABudget : public SpeculativeBatch {};

TEST_F(BatchWithABudget, WithAChosenBudgetTheTextIsTheSameAndEveryRoundTellsHowItWasChosen) {
  for (double slope : {0.0, 0.05, 0.3, 2.0}) {
    Speculation speculation = oracle({.nodes = 24, .depth = 8}, {0.8, 0.6, 0.7});
    speculation.budget = budget_of(slope);
    Batch batch(model_, {.context = 256, .invariants = true}, speculation);
    std::int64_t rows = 0, rounds = 0;
    GenerateEvents events;
    events.on_round = [&](const Round& round) {
      ASSERT_TRUE(round.budget.has_value());
      EXPECT_EQ(round.budget->step_seconds.size(), 24u);
      EXPECT_EQ(round.budget->step_rows, round.tree.size());
      EXPECT_LE(round.tree.size(), 24);
      EXPECT_TRUE(round.budget->drafted || round.tree.size() == 1);
      rows += round.tree.size();
      ++rounds;
    };
    const auto result = batch.generate(prompt_, {.max_tokens = 100}, events);
    EXPECT_EQ(result.tokens, expected(100)) << "slope " << slope;
    EXPECT_EQ(result.verified_rows, rows);
    EXPECT_EQ(result.rounds(), rounds);
  }
}

TEST_F(BatchWithABudget, WhereRowsAreDearEveryRoundIsPlain) {
  Speculation speculation = oracle({.nodes = 24, .depth = 8});
  speculation.budget = budget_of(1.0);
  Batch batch(model_, {.context = 256}, speculation);
  const auto result = batch.generate(prompt_, {.max_tokens = 60});
  EXPECT_EQ(result.plain_rounds, result.rounds());
  EXPECT_EQ(result.verified_rows, 59);
}

TEST_F(BatchWithABudget, WhereRowsCostNothingAnOracleIsBelievedToTheLastLevel) {
  Speculation speculation = oracle({.shape = TreeShape::chain, .nodes = 24, .depth = 5});
  speculation.budget = budget_of(0.0);
  Batch batch(model_, {.context = 256}, speculation);
  const auto result = batch.generate(prompt_, {.max_tokens = 181});
  EXPECT_EQ(result.rounds(), 180 / 6);
  EXPECT_EQ(result.plain_rounds, 0);
}

TEST_F(BatchWithABudget, DraftersRestInLongPausesAndThoseOfNewAnswersFromTheirPromptOn) {
  CountingDrafter::Calls calls;
  Speculation speculation = counting({.shape = TreeShape::chain, .nodes = 4, .depth = 3}, calls);
  speculation.budget = budget_of(0.2);
  double now = 0;
  speculation.budget->clock = [&now] { return now += 1e-4; };  // a tenth of a step each time somebody looks
  Batch batch(model_, {.context = 256}, speculation);
  batch.generate(prompt_, {.max_tokens = 200});
  EXPECT_GT(calls.rounds, 3) << "probes";
  EXPECT_GT(calls.awake, 31) << "before and between the first of them";
  EXPECT_GT(calls.resting, 31);
  calls = {};
  batch.generate(prompt_, {.max_tokens = 30});
  EXPECT_EQ(calls.rounds, 0);
  EXPECT_EQ(calls.awake, 0);
  EXPECT_EQ(calls.resting, 30) << "its prompt, and a round for each token behind the first";
}

TEST_F(BatchWithABudget, InACompanyThatNoGuessesWouldPayInDraftersHearNothingFromThePromptOnButForAScouts) {
  CountingDrafter::Calls calls;
  Speculation speculation = counting({.shape = TreeShape::chain, .nodes = 4, .depth = 3}, calls);
  speculation.budget = budget_of(0.5);
  double now = 0;
  speculation.budget->clock = [&now] { return now += 1e-4; };
  Batch batch(model_, {.context = 256, .parallel = 8}, speculation);
  for (int i = 0; i < 8; ++i) batch.submit({.prompt = prompt_, .options = {.max_tokens = 30}});
  while (batch.step()) continue;
  EXPECT_GT(calls.rounds, 0) << "it runs no network: it knows the text at once";
  EXPECT_LT(calls.rounds, 8);
  EXPECT_GT(calls.awake + calls.resting, 20);
  EXPECT_LT(calls.awake + calls.resting, 40) << "one of eight";
  batch.generate(prompt_, {.max_tokens = 30});
  EXPECT_GT(calls.rounds, 0) << "alone they might";
}

TEST_F(BatchWithABudget, DraftersHearNothingOfARequestWithoutDrafts) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 256}, counting({.nodes = 4, .depth = 2}, calls));
  batch.generate(GenerateRequest{.prompt = prompt_, .options = {.max_tokens = 20}, .draft = {.drafts = false}});
  EXPECT_EQ(calls.awake + calls.resting, 0);
  batch.generate(prompt_, {.max_tokens = 20});
  EXPECT_EQ(calls.resting, 0) << "with a fixed budget whoever may be asked is ready";
  EXPECT_GT(calls.awake, 0);
}

TEST_F(BatchWithABudget, OfGuessesThatAreHardlyEverTakenFewAreVerified) {
  Speculation speculation{{.nodes = 24, .depth = 6}, [](KvCache&, int) {
                            DrafterSet set;
                            set.push_back(std::make_unique<HostileDrafter>(1, kTinyVocabulary));
                            return set;
                          }};
  speculation.budget = budget_of(0.2);
  Batch batch(model_, {.context = 256}, speculation);
  batch.generate(prompt_, {.max_tokens = 100});
  const auto later = batch.generate(prompt_, {.max_tokens = 150});
  EXPECT_LT(later.verified_rows, 149 * 3 / 2) << "what was learned holds for the next answer too";
}

TEST_F(BatchWithABudget, SeveralAnswersShareTheRowsOfAStep) {
  Speculation speculation = oracle({.nodes = 16, .depth = 4}, {0.7});
  speculation.budget = budget_of(0.1);
  Batch batch(model_, {.context = 256, .parallel = 3, .invariants = true}, speculation);
  const std::vector<std::int32_t> other = {7, 7, 8};
  const auto expected_other = Batch(model_, {.context = 256}).generate(other, {.max_tokens = 40}).tokens;
  std::int64_t together = 0;
  const GenerateEvents events{.on_round = [&](const Round& round) {
    together = std::max(together, round.budget->step_rows);
    EXPECT_GE(round.budget->step_rows, round.tree.size());
  }};
  std::vector<GenerateRequest> requests(3);
  requests[0].prompt = requests[2].prompt = prompt_;
  requests[1].prompt = other;
  for (std::size_t i = 0; i < 3; ++i) {
    requests[i].options.max_tokens = std::vector<std::int64_t>{60, 40, 25}[i];
    requests[i].events = events;
  }
  const auto results = batch.generate(requests);
  EXPECT_EQ(results[0].tokens, expected(60));
  EXPECT_EQ(results[1].tokens, expected_other);
  EXPECT_EQ(results[2].tokens, expected(25));
  EXPECT_GT(together, 3);
  EXPECT_LE(together, 48);
}

TEST_F(BatchWithABudget, WithoutStepTimesMeasuresThemOnceAndTellsThem) {
  Speculation speculation = oracle({.nodes = 8, .depth = 3});
  std::vector<StepTimes> told;
  double now = 0;
  speculation.budget = ChosenBudget{.on_measured = [&](const StepTimes& times) { told.push_back(times); },
                                    .clock = [&] { return now += 1e-5; }};  // however slow the machine is
  Batch batch(model_, {.context = 100}, speculation);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].usable());
  EXPECT_EQ(told[0].rows.back(), 8);
  EXPECT_EQ(told[0].contexts, std::vector<std::int64_t>{64}) << "the second context does not fit";
  const Batch unmeasured(model_, {.context = 100}, oracle({.nodes = 8, .depth = 3}));
  EXPECT_EQ(batch.cache().free_positions(), unmeasured.cache().free_positions()) << "measuring leaves nothing behind";
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 80}).tokens, expected(80));
  speculation.budget->times = told[0];
  const Batch again(model_, {.context = 100}, speculation);
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(again.budget()->costs().measured(), told[0]);
  speculation.budget->times = StepTimes{.rows = {1}, .contexts = {0}, .seconds = {-1}};
  const Batch damaged(model_, {.context = 100}, speculation);
  EXPECT_EQ(told.size(), 2u) << "a damaged table is none";
}

TEST_F(BatchWithABudget, WhoSharesStepsKnowsWhatTheyCostAlsoWithoutDrafters) {
  double now = 0;
  const Speculation plain{.budget = ChosenBudget{.clock = [&] { return now += 1e-5; }}};
  EXPECT_EQ(Batch(model_, {.context = 256}, plain).step_times(), nullptr) << "alone nobody waits for others' prompts";
  const Batch together(model_, {.context = 256, .parallel = 2}, plain);
  ASSERT_NE(together.step_times(), nullptr);
  EXPECT_EQ(together.step_times()->rows.back(), 64) << "of prompts too, not of two roots alone";
  EXPECT_EQ(together.budget(), nullptr) << "nothing is chosen";
  const Batch narrow(model_, {.context = 20, .parallel = 2}, plain);
  EXPECT_EQ(narrow.step_times()->rows.back(), 16) << "no more than a context holds";
}

// How far a prompt of so many tokens has been read after each step that has some of it, while another answer decodes
// that already has `drawn` tokens.
class PromptBesideAnother : public BatchWithABudget {
 protected:
  std::vector<std::int64_t> read_beside_another(const Speculation& speculation, std::size_t length,
                                                std::int64_t drawn = 1) const {
    Batch batch(model_, {.context = 256, .parallel = 2, .stall_seconds = 0.05}, speculation);
    std::int64_t tokens = 0;
    GenerateRequest decoding{.prompt = prompt_, .options = {.max_tokens = 200}};
    decoding.events.on_token = [&](const GeneratedToken&) { return ++tokens > 0; };
    batch.submit(decoding);
    while (tokens < drawn) batch.step();
    const std::vector<std::int32_t> longer(length, 9);
    std::vector<std::int64_t> told;
    GenerateRequest reading{.prompt = longer, .options = {.max_tokens = 1}};
    reading.events.on_prefill = [&](std::int64_t done, std::int64_t) { told.push_back(done); };
    batch.submit(reading);
    while (batch.step()) continue;
    return told;
  }
};

TEST_F(PromptBesideAnother, IsBoundedInTimeAlsoWithoutDrafters) {
  // A step of n rows takes n seconds: beside a root there is time for the least prompt rows alone.
  for (const bool fixed : {false, true}) {
    Speculation speculation = fixed ? oracle({.nodes = 2, .depth = 1}) : Speculation();
    speculation.budget = ChosenBudget{.cuts = false,
                                      .times = StepTimes{.rows = {1, 64}, .contexts = {0}, .seconds = {1, 64}},
                                      .clock = [] { return 0.0; }};
    const std::vector<std::int64_t> told = read_beside_another(speculation, 64);
    ASSERT_EQ(std::ssize(told), 1 + 64 / kLeastPromptRows) << fixed;
    for (std::int64_t i = 0; i < std::ssize(told); ++i)
      EXPECT_EQ(told[static_cast<std::size_t>(i)], i * kLeastPromptRows) << fixed;
  }
}

TEST_F(PromptBesideAnother, IsBoundedByWhatRowsCostWhereTheyStand) {
  // Rows at the beginning of a text take a millisecond each, behind a hundred positions ten.
  Speculation speculation;
  speculation.budget =
      ChosenBudget{.cuts = false,
                   .times = StepTimes{.rows = {1, 64}, .contexts = {0, 100}, .seconds = {1e-3, 64e-3, 10e-3, 640e-3}},
                   .clock = [] { return 0.0; }};
  const std::vector<std::int64_t> told = read_beside_another(speculation, 200);
  ASSERT_GE(told.size(), 3u);
  EXPECT_GT(told[1], 32) << "the one who decodes stands at the beginning too";
  for (std::size_t i = 2; i + 1 < told.size(); ++i) EXPECT_LT(told[i] - told[i - 1], 16) << i;
}

TEST_F(PromptBesideAnother, IsBoundedByWhatOthersTakeWhereTheyStand) {
  // A root alone takes 20 milliseconds at the beginning of a text, and would take 60 where the prompt is read: twice
  // that is not what anybody waits for.
  Speculation speculation;
  speculation.budget =
      ChosenBudget{.cuts = false,
                   .times = StepTimes{.rows = {1, 64}, .contexts = {0, 100}, .seconds = {20e-3, 83e-3, 60e-3, 690e-3}},
                   .clock = [] { return 0.0; }};
  const std::vector<std::int64_t> told = read_beside_another(speculation, 200);
  for (std::size_t i = 2; i + 1 < told.size(); ++i) {
    if (told[i - 1] < 100) continue;
    EXPECT_LE(told[i] - told[i - 1], 3) << i;
  }
}

TEST_F(PromptBesideAnother, LeavesTimeForWhatIsDoneBesideAStep) {
  // A row takes a millisecond. Where drafts take 20 of them, there is time for so many rows fewer.
  const auto first_part = [&](double drafting) {
    double now = 0;
    CountingDrafter::Calls calls;
    Speculation speculation = counting({.shape = TreeShape::chain, .nodes = 2, .depth = 1}, calls);
    calls.on_round = [&] { now += drafting; };
    speculation.budget = ChosenBudget{.cuts = false,
                                      .times = StepTimes{.rows = {1, 64}, .contexts = {0}, .seconds = {1e-3, 64e-3}},
                                      .clock = [&] { return now; }};
    return read_beside_another(speculation, 150, 20).at(1);
  };
  EXPECT_GT(first_part(0), 40);
  EXPECT_LT(first_part(0.02), 35);
}

TEST_F(BatchWithABudget, MeasuresFewerStepsWhereEachTakesLong) {
  double now = 0;
  std::optional<StepTimes> told;
  Speculation speculation = oracle({.nodes = 64, .depth = 3});
  speculation.budget = ChosenBudget{.on_measured = [&](const StepTimes& times) { told = times; },
                                    .clock = [&] { return now += 0.1; }};  // a step seems to take 0.1 s
  const Batch batch(model_, {.context = 256}, speculation);
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->usable());
  EXPECT_LT(told->rows.size(), 6u);
  EXPECT_GE(told->rows.size(), 2u);
}

}  // namespace
}  // namespace espalier
