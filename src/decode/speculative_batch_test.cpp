// The decoding loop with drafters: what a round costs, what its listeners hear, and what happens at its edges. That the
// text never changes is shown by tests/lossless_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/batch.h"
#include "decode/hostile_drafter.h"
#include "decode/oracle_drafter.h"
#include "device/cpu/cpu_device.h"

namespace espalier {
namespace {

using ::testing::Each;

constexpr std::int32_t kTinyVocabulary = 272;

// Counts its calls, guesses the next ids of the vocabulary.
class CountingDrafter final : public LoneDrafter {
 public:
  struct Calls {
    int opened = 0, rounds = 0, passes = 0, ended = 0, settled = 0;
    int resting = 0, awake = 0;  // commits that were heard at rest, and others
    std::vector<std::size_t> nodes = {};
    std::vector<std::int32_t> committed = {};  // of the sequence that was told of last
    bool may_hear_twice = false;               // of a position that others want computed again
    std::function<void()> on_round = [] {};
  };
  explicit CountingDrafter(Calls& calls) : calls_(calls) {}

  std::string_view name() const override { return "counting"; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override {
    ++calls_.opened;
    return std::make_unique<Sequence>(calls_);
  }

 private:
  class Sequence final : public LoneSequence {
   public:
    explicit Sequence(Calls& calls) : calls_(calls) {}

    bool reused(std::span<const std::int32_t> tokens) override {
      EXPECT_GE(tokens.size(), committed_.size());
      EXPECT_TRUE(std::ranges::equal(tokens.first(std::min(tokens.size(), committed_.size())), committed_));
      committed_.assign(tokens.begin(), tokens.end());
      return false;
    }
    void rest(bool resting) override { resting_ = resting; }
    void committed(const CommittedRows& rows) override {
      ++(resting_ ? calls_.resting : calls_.awake);
      const auto length = static_cast<std::int64_t>(committed_.size());
      if (calls_.may_hear_twice && rows.begin + 1 == length)
        EXPECT_EQ(rows.tokens.front(), committed_.back());
      else
        EXPECT_EQ(rows.begin, length);
      const std::span<const std::int32_t> tokens = rows.from(length).tokens;
      committed_.insert(committed_.end(), tokens.begin(), tokens.end());
      calls_.committed = committed_;
    }
    void begin_round(const DraftRound& round) override {
      ++calls_.rounds;
      calls_.on_round();
      EXPECT_FALSE(resting_) << "whoever is asked has been told so";
      EXPECT_TRUE(std::ranges::equal(round.tokens.first(round.tokens.size() - 1), committed_));
      EXPECT_TRUE(round.branch->open());
    }
    Guesses expand(const Candidates& candidates, std::span<const int> nodes, int branch) override {
      ++calls_.passes;
      calls_.nodes.push_back(nodes.size());
      Guesses all;
      for (int node : nodes) {
        auto& guesses = all.emplace_back();
        for (int i = 1; i <= branch; ++i) guesses.push_back({(candidates[node].token + i) % kTinyVocabulary, -0.5 * i});
      }
      return all;
    }
    void end_round(const DraftVerdict&) override { ++calls_.ended; }
    void settle() override { ++calls_.settled; }

   private:
    Calls& calls_;
    bool resting_ = false;
    std::vector<std::int32_t> committed_;
  };

  Calls& calls_;
};

// The committed positions of an answer at its end.
EndObserver keep_length(std::int64_t& length) {
  return [&length](const AnswerEnd& end) { length = end.cache.length(end.sequence.value()); };
}

class SpeculativeBatch : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  Transformer model_ = load_transformer(*device_, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33};
  std::vector<std::int32_t> text_;  // prompt and answer
  KnownAnswers answers_;

  void SetUp() override {
    Batch plain(model_, {.context = 256});
    const auto tokens = plain.generate(prompt_, {.max_tokens = 200}).tokens;
    answers_.learn(prompt_, tokens);
    text_ = prompt_;
    text_.insert(text_.end(), tokens.begin(), tokens.end());
  }

  std::vector<std::int32_t> expected(std::size_t count) const {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(prompt_.size());
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  Speculation oracle(const TreeOptions& tree, std::vector<double> profile = {}) const {
    return {tree, [this, profile](KvCache&, int) {
              DrafterSet set;
              set.push_back(std::make_unique<OracleDrafter>(
                  &answers_, OracleOptions{.profile = profile, .seed = 1, .vocabulary = kTinyVocabulary}));
              return set;
            }};
  }

  Speculation counting(const TreeOptions& tree, CountingDrafter::Calls& calls) const {
    return {tree, [&calls](KvCache&, int) {
              DrafterSet set;
              set.push_back(std::make_unique<CountingDrafter>(calls));
              return set;
            }};
  }
};

TEST_F(SpeculativeBatch, AnOracleOfDepthFiveDividesTheTeachersStepsBySix) {
  for (TreeShape shape : {TreeShape::chain, TreeShape::dynamic}) {
    Batch batch(model_, {.context = 256}, oracle({.shape = shape, .nodes = 16, .depth = 5}));
    const auto result = batch.generate(prompt_, {.max_tokens = 181});
    EXPECT_EQ(result.tokens, expected(181));
    EXPECT_EQ(result.rounds(), 180 / 6) << "the first token comes from the prompt, each step brings six";
    EXPECT_THAT(result.accept_lengths, Each(5));
    EXPECT_EQ(result.accept_length(), 5.0);
  }
}

TEST_F(SpeculativeBatch, PlainDecodingTakesAStepForEveryToken) {
  Batch batch(model_, {.context = 256});
  const auto result = batch.generate(prompt_, {.max_tokens = 31});
  EXPECT_EQ(result.rounds(), 30);
  EXPECT_THAT(result.accept_lengths, Each(0));
}

TEST_F(SpeculativeBatch, EveryTokenIsTheFirstOrCountedByARound) {
  Batch batch(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.8, 0.6}));
  const auto result = batch.generate(prompt_, {.max_tokens = 100});
  std::int64_t tokens = 1;
  for (std::int64_t accepted : result.accept_lengths) tokens += accepted + 1;
  EXPECT_EQ(tokens, 100);
  EXPECT_GT(result.accept_length(), 0.5);
}

TEST_F(SpeculativeBatch, ABudgetOfOneAsksTheDrafterForNothing) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 64}, counting({.nodes = 1}, calls));
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 10}).tokens, expected(10));
  EXPECT_EQ(calls.rounds, 0);
  EXPECT_EQ(calls.ended, 0);
  EXPECT_EQ(calls.committed.size(), prompt_.size() + 9) << "it still hears what is committed";
}

TEST_F(SpeculativeBatch, ABudgetOfTwoIsOneDraftPassAndNoExpansion) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 64}, counting({.nodes = 2, .depth = 6}, calls));
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 10}).tokens, expected(10));
  EXPECT_EQ(calls.passes, calls.rounds);
  EXPECT_EQ(calls.ended, calls.rounds);
  EXPECT_THAT(calls.nodes, Each(1u));
}

TEST_F(SpeculativeBatch, ATreeIsNoDeeperThanTheAnswerMayStillGet) {
  std::vector<int> depths;
  GenerateEvents events;
  events.on_round = [&](const Round& round) { depths.push_back(round.tree.depth()); };
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 64}, counting({.shape = TreeShape::chain, .nodes = 16, .depth = 3}, calls));
  batch.generate(prompt_, {.max_tokens = 6}, events);
  EXPECT_EQ(depths.back(), 0) << "one token is missing: the root's own draw";
  EXPECT_EQ(calls.rounds, static_cast<int>(depths.size()) - 1);
}

TEST_F(SpeculativeBatch, ATreeFitsBetweenTheLastTokenAndTheEndOfTheContext) {
  Batch plain(model_, {.context = 20});
  const auto expected_result = plain.generate(prompt_, {.max_tokens = 100});
  for (const Speculation& speculation : {oracle({.nodes = 64, .depth = 12, .expand = 8}),
                                         oracle({.shape = TreeShape::chain, .nodes = 64, .depth = 12})}) {
    Batch batch(model_, {.context = 20, .invariants = true}, speculation);
    std::int64_t length = 0;
    const auto result = batch.generate(prompt_, {.max_tokens = 100}, {.on_end = keep_length(length)});
    EXPECT_EQ(result.tokens, expected_result.tokens);
    EXPECT_EQ(result.finish_reason, FinishReason::context_limit);
    EXPECT_EQ(length, 20);
  }
}

TEST_F(SpeculativeBatch, AStopInsideAnAcceptedPathCutsTheCacheThere) {
  Batch batch(model_, {.context = 256}, oracle({.nodes = 16, .depth = 10}));
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) { return ++heard < 5; };
  std::int64_t length = 0;
  events.on_end = keep_length(length);
  const auto result = batch.generate(prompt_, {.max_tokens = 100}, events);
  EXPECT_EQ(result.finish_reason, FinishReason::stopped);
  EXPECT_EQ(result.tokens, expected(5));
  EXPECT_EQ(heard, 5);
  EXPECT_EQ(length, static_cast<std::int64_t>(prompt_.size()) + 4);
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 20}).tokens, expected(20)) << "and it can go on from there";
}

TEST_F(SpeculativeBatch, ListenersSeeTheWholeRound) {
  std::vector<std::int32_t> heard;
  std::int64_t prefix = 0, rounds = 0;
  std::optional<FinishReason> finish;
  GenerateEvents events;
  events.on_round = [&](const Round& round) {
    EXPECT_EQ(round.number, rounds++);
    if (round.number == 0) prefix = round.prefix;
    EXPECT_EQ(round.prefix, prefix);
    EXPECT_EQ(round.visits.front().node, 0);
    EXPECT_EQ(round.tree[0].token, text_[static_cast<std::size_t>(prefix)]);
    for (std::size_t i = 0; i < round.visits.size(); ++i) {
      heard.push_back(round.visits[i].token);
      if (i == 0) continue;
      EXPECT_EQ(round.tree[round.visits[i].node].token, round.visits[i - 1].token);
    }
    EXPECT_GT(round.times.verify, 0);
    prefix += round.accepted() + 1;
    finish = round.finish;
  };
  Batch batch(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.7}));
  const auto result = batch.generate(prompt_, {.max_tokens = 60}, events);
  EXPECT_EQ(heard, std::vector(result.tokens.begin() + 1, result.tokens.end()));
  EXPECT_EQ(rounds, result.rounds());
  EXPECT_EQ(finish, FinishReason::token_limit);
}

TEST_F(SpeculativeBatch, AnExceptionOfAListenerLeavesAUsableBatch) {
  Batch batch(model_, {.context = 256, .kv = {.check = true}}, oracle({.nodes = 16, .depth = 5}));
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) -> bool {
    if (++heard == 4) throw std::runtime_error("the listener fell asleep");
    return true;
  };
  std::int64_t length = 0;
  events.on_end = keep_length(length);
  EXPECT_THROW(batch.generate(prompt_, {.max_tokens = 50}, events), std::runtime_error);
  EXPECT_EQ(length, static_cast<std::int64_t>(prompt_.size())) << "the round it happened in was rolled back";
  EXPECT_EQ(batch.generate(prompt_, {.max_tokens = 50}).tokens, expected(50));
}

TEST_F(SpeculativeBatch, SequencesOfOneStepAreCommittedAndRolledBackIndependently) {
  const std::vector<std::int32_t> other = {7, 7, 8};
  Batch alone(model_, {.context = 64});
  const auto expected_other = alone.generate(other, {.max_tokens = 9}).tokens;
  Batch batch(model_, {.context = 64, .parallel = 2, .kv = {.check = true}}, oracle({.nodes = 16, .depth = 5}));
  const std::vector<GenerateRequest> requests = {{.prompt = prompt_, .options = {.max_tokens = 30}},
                                                 {.prompt = other, .options = {.max_tokens = 9}}};
  const auto results = batch.generate(requests);
  EXPECT_EQ(results[0].tokens, expected(30)) << "the oracle knows this one";
  EXPECT_EQ(results[1].tokens, expected_other) << "and not this one";
  EXPECT_EQ(results[0].rounds(), 5);
  EXPECT_EQ(results[1].rounds(), 8);
}

TEST_F(SpeculativeBatch, EagerAttentionWithListsIsRefused) {
  EXPECT_THROW(Batch(model_, {.attention = AttentionOp::eager, .mask = MaskChoice::list}), InputError);
  EXPECT_EQ(Batch(model_, {.attention = AttentionOp::eager}).form().mask, MaskForm::dense);
  EXPECT_EQ(Batch(model_, {}).form().mask, MaskForm::list);
}

TEST_F(SpeculativeBatch, AFastCommitWritesOnlyRowsThatAreNotInPlace) {
  Batch chain(model_, {.context = 256}, oracle({.shape = TreeShape::chain, .nodes = 6, .depth = 5}));
  chain.generate(prompt_, {.max_tokens = 61});
  EXPECT_EQ(chain.cache().counts().bytes_committed, 0) << "a chain is always in place";
  Batch tree(model_, {.context = 256}, oracle({.nodes = 16, .depth = 5}));
  const auto result = tree.generate(prompt_, {.max_tokens = 61});
  const KvCounts& counts = tree.cache().counts();
  EXPECT_GT(counts.bytes_committed, 0);
  EXPECT_LE(counts.bytes_committed, 5 * result.rounds() * tree.cache().memory().slot_bytes());
  EXPECT_EQ(counts.bytes_branched, 0);
  EXPECT_EQ(counts.reorder_fallbacks, 0);
}

// --- chosen budgets

// Steps of n rows take 1 + slope (n - 1) ms; the clock stands still, so nothing corrects that.
ChosenBudget budget_of(double slope) {
  return {.times = StepTimes{.rows = {1, 64}, .contexts = {64}, .seconds = {1e-3, 1e-3 * (1 + 63 * slope)}},
          .clock = [] { return 0.0; }};
}

TEST_F(SpeculativeBatch, WithAChosenBudgetTheTextIsTheSameAndEveryRoundTellsHowItWasChosen) {
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

TEST_F(SpeculativeBatch, WhereRowsAreDearEveryRoundIsPlain) {
  Speculation speculation = oracle({.nodes = 24, .depth = 8});
  speculation.budget = budget_of(1.0);
  Batch batch(model_, {.context = 256}, speculation);
  const auto result = batch.generate(prompt_, {.max_tokens = 60});
  EXPECT_EQ(result.plain_rounds, result.rounds());
  EXPECT_EQ(result.verified_rows, 59);
}

TEST_F(SpeculativeBatch, WhereRowsCostNothingAnOracleIsBelievedToTheLastLevel) {
  Speculation speculation = oracle({.shape = TreeShape::chain, .nodes = 24, .depth = 5});
  speculation.budget = budget_of(0.0);
  Batch batch(model_, {.context = 256}, speculation);
  const auto result = batch.generate(prompt_, {.max_tokens = 181});
  EXPECT_EQ(result.rounds(), 180 / 6);
  EXPECT_EQ(result.plain_rounds, 0);
}

TEST_F(SpeculativeBatch, DraftersRestInLongPausesAndThoseOfNewAnswersFromTheirPromptOn) {
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

TEST_F(SpeculativeBatch, InACompanyThatNoGuessesWouldPayInDraftersRestFromThePromptOn) {
  CountingDrafter::Calls calls;
  Speculation speculation = counting({.shape = TreeShape::chain, .nodes = 4, .depth = 3}, calls);
  speculation.budget = budget_of(0.5);
  Batch batch(model_, {.context = 256, .parallel = 8}, speculation);
  for (int i = 0; i < 8; ++i) batch.submit({.prompt = prompt_, .options = {.max_tokens = 30}});
  while (batch.step()) continue;
  EXPECT_EQ(calls.rounds, 0);
  EXPECT_EQ(calls.awake, 0);
  EXPECT_GT(calls.resting, 8 * 29);
  batch.generate(prompt_, {.max_tokens = 30});
  EXPECT_GT(calls.rounds, 0) << "alone they might";
}

TEST_F(SpeculativeBatch, DraftersHearNothingOfARequestWithoutDrafts) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 256}, counting({.nodes = 4, .depth = 2}, calls));
  batch.generate(GenerateRequest{.prompt = prompt_, .options = {.max_tokens = 20}, .draft = {.drafts = false}});
  EXPECT_EQ(calls.awake + calls.resting, 0);
  batch.generate(prompt_, {.max_tokens = 20});
  EXPECT_EQ(calls.resting, 0) << "with a fixed budget whoever may be asked is ready";
  EXPECT_GT(calls.awake, 0);
}

TEST_F(SpeculativeBatch, OfGuessesThatAreHardlyEverTakenFewAreVerified) {
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

TEST_F(SpeculativeBatch, SeveralAnswersShareTheRowsOfAStep) {
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

TEST_F(SpeculativeBatch, WithoutStepTimesMeasuresThemOnceAndTellsThem) {
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

TEST_F(SpeculativeBatch, WhoSharesStepsKnowsWhatTheyCostAlsoWithoutDrafters) {
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
class PromptBesideAnother : public SpeculativeBatch {
 protected:
  std::vector<std::int64_t> read_beside_another(const Speculation& speculation, std::size_t length,
                                                std::int64_t drawn = 1) const {
    Batch batch(model_, {.context = 256, .parallel = 2, .stall_seconds = 0.05}, speculation);
    std::int64_t tokens = 0;
    GenerateRequest decoding{.prompt = prompt_, .options = {.max_tokens = 100}};
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

TEST_F(SpeculativeBatch, MeasuresFewerStepsWhereEachTakesLong) {
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

TEST_F(SpeculativeBatch, TreesThatAreKnownAreVerifiedAsTheyAre) {
  std::vector<TokenTree> given, seen;
  const auto source = [&](std::span<const std::int32_t> tokens) {
    TokenTree tree(tokens.back());
    tree.append(0, {.token = 3, .score = -9});
    tree.append(0, {.token = text_[tokens.size()], .score = -9.5, .sources = 4});  // right, but worse
    tree.append(2, {.token = 7, .score = -10});
    given.push_back(tree);
    return tree;
  };
  Batch batch(model_, {.context = 256, .invariants = true}, {.tree = {.nodes = 4}, .trees = source});
  const auto result = batch.generate(prompt_, {.max_tokens = 20},
                                     {.on_round = [&](const Round& round) { seen.push_back(round.tree); }});
  EXPECT_EQ(result.tokens, expected(20));
  EXPECT_EQ(seen, given);
  EXPECT_GE(result.accept_length(), 0.9);
}

TEST_F(SpeculativeBatch, TreesThatAreKnownAreNotForABudgetToCut) {
  const Speculation both{
      .tree = {.nodes = 4}, .budget = budget_of(0.1), .trees = [](auto tokens) { return TokenTree(tokens.back()); }};
  EXPECT_THROW(Batch(model_, {.context = 64}, both).generate(prompt_, {.max_tokens = 4}), std::logic_error);
}

TEST_F(SpeculativeBatch, ATreeBelowAnotherTokenThanTheRootIsOurMistake) {
  Batch batch(model_, {.context = 64},
              {.tree = {.nodes = 4}, .trees = [](auto tokens) { return TokenTree(tokens.back() + 1); }});
  EXPECT_THROW(batch.generate(prompt_, {.max_tokens = 4}), std::logic_error);
}

TEST_F(SpeculativeBatch, AnAnswerThatHasBegunGoesOnAsIfItHadBeenDrawn) {
  const GenerateOptions options{
      .sampling = {.presence_penalty = 0.5f, .temperature = 0.8f}, .seed = 3, .max_tokens = 24};
  Batch batch(model_, {.context = 256});
  const auto whole = batch.generate(prompt_, options).tokens;
  for (std::size_t begun : {1u, 2u, 11u, 24u}) {
    Batch fresh(model_, {.context = 256});
    for (Batch* one : {&fresh, &batch}) {  // with and without the text in its cache
      const auto result =
          one->generate({.prompt = prompt_, .options = options, .answered = std::span(whole).first(begun)});
      EXPECT_EQ(result.tokens, whole) << begun;
      EXPECT_EQ(result.rounds(), static_cast<std::int64_t>(24 - begun));
    }
  }
}

TEST_F(SpeculativeBatch, CopiedBytesAreToldByRound) {
  for (CacheStrategy strategy : {CacheStrategy::shared, CacheStrategy::replicate}) {
    Batch batch(model_, {.context = 256, .kv = {.strategy = strategy}}, oracle({.nodes = 8, .depth = 3}, {0.5}));
    batch.generate(prompt_, {.max_tokens = 1});
    KvCounts before;
    KvTraffic sum;
    const auto read = [&](std::int64_t, std::int64_t) { before = batch.cache().counts(); };  // last: all of the prompt
    const auto observe = [&](const Round& round) {
      sum.branched += round.kv.branched;
      sum.committed += round.kv.committed;
    };
    batch.generate({.prompt = prompt_,
                    .options = {.max_tokens = 40},
                    .events = {.on_prefill = read, .on_round = observe},
                    .answered = std::span(text_).subspan(prompt_.size(), 1)});
    const KvCounts& after = batch.cache().counts();
    EXPECT_EQ(sum.branched, after.bytes_branched - before.bytes_branched);
    EXPECT_EQ(sum.committed, after.bytes_committed - before.bytes_committed);
    EXPECT_EQ(sum.branched > 0, strategy == CacheStrategy::replicate);
  }
}

TEST_F(SpeculativeBatch, AFailureIsToldWithTheStateOfItsRound) {
  Batch batch(model_, {.context = 64}, {.tree = {.nodes = 4}, .trees = [&](auto tokens) {
                                          if (tokens.size() == prompt_.size() + 3) throw DeviceError("no more");
                                          return TokenTree(tokens.back());
                                        }});
  std::vector<AnswerStage> stages;
  const auto observe = [&](const AnswerFailure& failure) {
    stages.push_back(failure.stage);
    EXPECT_EQ(failure.round, 2);
    EXPECT_EQ(failure.tree, nullptr);
    EXPECT_EQ(std::vector(failure.answered.begin(), failure.answered.end()), expected(3));
    EXPECT_EQ(failure.committed, static_cast<std::int64_t>(prompt_.size()) + 2);
  };
  EXPECT_THROW(batch.generate(prompt_, {.max_tokens = 9}, {.on_failure = observe}), DeviceError);
  EXPECT_EQ(stages, std::vector{AnswerStage::draft});
}

// --- many answers

TEST_F(SpeculativeBatch, ARequestHasTheDraftsItAskedForWhateverItsCompanyHas) {
  for (bool chosen : {false, true}) {
    Speculation speculation = oracle({.nodes = 16, .depth = 5});
    if (chosen) speculation.budget = budget_of(0.0);
    Batch batch(model_, {.context = 256, .parallel = 5, .kv = {.check = true}, .invariants = true}, speculation);
    struct Seen {
      int rows = 0, depth = 0;
    };
    Seen seen[5];
    const DraftCaps caps[5] = {{}, {.drafts = false}, {.nodes = 3}, {.depth = 2}, {.nodes = 1}};
    std::vector<GenerateRequest> requests(5);
    for (std::size_t i = 0; i < 5; ++i) {
      const auto observe = [&, i](const Round& round) {
        seen[i].rows = std::max(seen[i].rows, round.tree.size());
        seen[i].depth = std::max(seen[i].depth, round.tree.depth());
      };
      requests[i] = {
          .prompt = prompt_, .options = {.max_tokens = 40}, .events = {.on_round = observe}, .draft = caps[i]};
    }
    const auto results = batch.generate(requests);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(results[i].tokens, expected(40)) << "request " << i;
    EXPECT_EQ(seen[0].depth, 5);
    EXPECT_GT(seen[0].rows, 5);
    EXPECT_EQ(seen[1].rows, 1);
    EXPECT_EQ(results[1].undrafted_rounds, 39) << "its drafters are not even asked";
    EXPECT_EQ(seen[2].rows, 3);
    EXPECT_EQ(seen[3].depth, 2);
    EXPECT_EQ(seen[4].rows, 1);
    EXPECT_EQ(results[4].undrafted_rounds, 39);
    EXPECT_THAT(results[3].accept_lengths, Each(::testing::Le(2)));
  }
}

TEST_F(SpeculativeBatch, AnswersThatJoinAtDifferentStepsAreDraftedAsIfTheyWereAlone) {
  Batch batch(model_, {.context = 256, .parallel = 3, .kv = {.check = true}, .invariants = true},
              oracle({.nodes = 12, .depth = 4}, {0.7}));
  const std::vector<std::int32_t> other = {7, 7, 8};
  const auto expected_other = Batch(model_, {.context = 256}).generate(other, {.max_tokens = 30}).tokens;
  Batch alone(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.7}));
  const auto lone = alone.generate(prompt_, {.max_tokens = 50});
  GenerateResult results[3];
  const auto submit = [&](std::size_t i, std::span<const std::int32_t> prompt, std::int64_t count) {
    const auto keep = [&results, i](const AnswerEnd& end) { results[i] = end.result; };
    batch.submit({.prompt = prompt, .options = {.max_tokens = count}, .events = {.on_end = keep}});
  };
  submit(0, prompt_, 50);
  for (int i = 0; i < 3; ++i) batch.step();
  submit(1, other, 30);
  for (int i = 0; i < 3; ++i) batch.step();
  submit(2, prompt_, 50);
  while (batch.step()) {
  }
  EXPECT_EQ(results[0].tokens, expected(50));
  EXPECT_EQ(results[1].tokens, expected_other);
  EXPECT_EQ(results[2].tokens, expected(50));
  EXPECT_EQ(results[0].accept_lengths, lone.accept_lengths) << "nor do drafts depend on the company";
  EXPECT_EQ(results[2].accept_lengths, lone.accept_lengths);
}

// Three answers of two blocks and more, in a cache that holds one and a half of them.
TEST_F(SpeculativeBatch, AnAnswerThatGivesWayToOthersIsDraftedAndComputedAgain) {
  CountingDrafter::Calls calls{.may_hear_twice = true};
  Speculation speculation{{.nodes = 8, .depth = 3}, [&](KvCache&, int) {
                            DrafterSet set;
                            set.push_back(std::make_unique<OracleDrafter>(
                                &answers_, OracleOptions{.profile = {0.6}, .seed = 1, .vocabulary = kTinyVocabulary}));
                            set.push_back(std::make_unique<HostileDrafter>(5, kTinyVocabulary));
                            set.push_back(std::make_unique<CountingDrafter>(calls));
                            return set;
                          }};
  // 300 + 9 + 128 positions are four blocks; one more may be copied.
  Batch batch(model_,
              {.context = 300, .parallel = 3, .cache_positions = 5 * 128, .kv = {.check = true}, .invariants = true},
              speculation);
  std::vector<std::vector<std::int32_t>> prompts(3, std::vector<std::int32_t>(100));
  std::vector<GenerateRequest> requests(3);
  std::vector<std::vector<std::int32_t>> alone;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t k = 0; k < 100; ++k)
      prompts[i][k] = static_cast<std::int32_t>((k * (5 + 16 * i) + k * k) % static_cast<std::size_t>(kTinyVocabulary));
    requests[i] = {.prompt = prompts[i], .options = {.max_tokens = 190}};
    alone.push_back(Batch(model_, {.context = 300}).generate(requests[i]).tokens);
    answers_.learn(prompts[i], alone[i]);
  }
  const auto results = batch.generate(requests);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(results[i].tokens, alone[i]) << "request " << i;
    std::int64_t tokens = 1;
    for (std::int64_t accepted : results[i].accept_lengths) tokens += accepted + 1;
    EXPECT_EQ(tokens, 190);
  }
  EXPECT_GT(calls.opened, 3) << "nobody gave way";
  EXPECT_GE(calls.settled, 3) << "whoever leaves blocks to others writes them first";
  batch.cache().check_conservation();
}

TEST_F(SpeculativeBatch, ADrafterHearsOfWhatIsReusedAndOfWhatIsComputed) {
  CountingDrafter::Calls calls;
  Batch batch(model_, {.context = 256}, counting({.nodes = 4, .depth = 2}, calls));
  batch.generate(prompt_, {.max_tokens = 10});
  EXPECT_EQ(calls.committed, std::vector(text_.begin(), text_.begin() + 15));
  EXPECT_EQ(calls.settled, 1);
  std::vector<std::int32_t> longer(text_.begin(), text_.begin() + 16);
  longer.push_back(44);
  const auto second = batch.generate(longer, {.max_tokens = 10});
  EXPECT_EQ(second.reused_tokens, 15);
  EXPECT_EQ(second.tokens, Batch(model_, {.context = 256}).generate(longer, {.max_tokens = 10}).tokens);
  longer.insert(longer.end(), second.tokens.begin(), second.tokens.end() - 1);
  EXPECT_EQ(calls.committed, longer) << "the drafter itself expects every position in its place";
  EXPECT_EQ(calls.opened, 2);
}

TEST_F(SpeculativeBatch, WhatAFailedAnswerLeavesOpenIsClosedAndTheBatchGoesOn) {
  bool fails = true;
  Batch batch(model_, {.context = 64, .parallel = 2, .kv = {.check = true}},
              {.tree = {.nodes = 4}, .trees = [&](auto tokens) {
                 if (fails && tokens.size() == prompt_.size() + 3) throw DeviceError("no more");
                 return TokenTree(tokens.back());
               }});
  const std::vector<GenerateRequest> requests(2, {.prompt = prompt_, .options = {.max_tokens = 9}});
  int told = 0;
  std::vector<GenerateRequest> heard = requests;
  for (GenerateRequest& request : heard) request.events.on_failure = [&](const AnswerFailure&) { ++told; };
  EXPECT_THROW(batch.generate(heard), DeviceError);
  EXPECT_EQ(told, 2) << "a step that failed ends all answers in it";
  EXPECT_EQ(batch.running() + batch.waiting(), 0);
  fails = false;
  for (const GenerateResult& result : batch.generate(requests)) EXPECT_EQ(result.tokens, expected(9));
}

TEST_F(SpeculativeBatch, DraftingIsDoneForAllAnswersTogetherAndEachIsToldWhatItTook) {
  Batch batch(model_, {.context = 256, .parallel = 2}, oracle({.nodes = 8, .depth = 3}));
  std::vector<double> drafting[2];
  std::vector<GenerateRequest> requests(2, {.prompt = prompt_, .options = {.max_tokens = 30}});
  for (std::size_t i = 0; i < 2; ++i)
    requests[i].events.on_round = [&, i](const Round& round) { drafting[i].push_back(round.times.draft); };
  batch.generate(requests);
  ASSERT_FALSE(drafting[0].empty());
  EXPECT_EQ(drafting[0], drafting[1]);
  EXPECT_THAT(drafting[0], Each(::testing::Gt(0)));
}

}  // namespace
}  // namespace espalier
