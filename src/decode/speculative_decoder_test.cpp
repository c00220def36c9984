// The decoding loop with drafters: what a round costs, what its listeners hear, and what happens at its edges. That the
// text never changes is shown by tests/lossless_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "decode/decoder.h"
#include "decode/hostile_drafter.h"
#include "decode/oracle_drafter.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::Each;

constexpr std::int32_t kTinyVocabulary = 272;

// Counts its calls, guesses the next ids of the vocabulary.
class CountingDrafter final : public Drafter {
 public:
  struct Calls {
    int rounds = 0, passes = 0, ended = 0;
    std::vector<std::size_t> nodes = {};
    std::vector<std::int32_t> committed = {};
  };
  explicit CountingDrafter(Calls& calls) : calls_(calls) {}

  std::string_view name() const override { return "counting"; }
  void rewind(std::int64_t length) override { calls_.committed.resize(static_cast<std::size_t>(length)); }
  void committed(const CommittedRows& rows) override {
    EXPECT_EQ(rows.begin, static_cast<std::int64_t>(calls_.committed.size()));
    calls_.committed.insert(calls_.committed.end(), rows.tokens.begin(), rows.tokens.end());
  }
  void begin_round(std::span<const std::int32_t> tokens) override {
    ++calls_.rounds;
    EXPECT_TRUE(std::ranges::equal(tokens.first(tokens.size() - 1), calls_.committed));
  }
  std::vector<std::vector<DraftToken>> expand(const Candidates& candidates, std::span<const int> nodes,
                                              int branch) override {
    ++calls_.passes;
    calls_.nodes.push_back(nodes.size());
    std::vector<std::vector<DraftToken>> all;
    for (int node : nodes) {
      auto& guesses = all.emplace_back();
      for (int i = 1; i <= branch; ++i) guesses.push_back({(candidates[node].token + i) % kTinyVocabulary, -0.5 * i});
    }
    return all;
  }
  void end_round(const TokenTree&, std::span<const Visit>) override { ++calls_.ended; }

 private:
  Calls& calls_;
};

class SpeculativeDecoder : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_reference_device();
  Transformer model_ = load_transformer(*device_, std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2");
  std::vector<std::int32_t> prompt_ = {5, 9, 40, 77, 120, 33};
  KnownAnswer answer_;

  void SetUp() override {
    Decoder plain(model_, {.context = 256});
    answer_.tokens = prompt_;
    const auto tokens = plain.generate(prompt_, {.max_tokens = 200}).tokens;
    answer_.tokens.insert(answer_.tokens.end(), tokens.begin(), tokens.end());
  }

  std::vector<std::int32_t> expected(std::size_t count) const {
    const auto begin = answer_.tokens.begin() + static_cast<std::ptrdiff_t>(prompt_.size());
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  Speculation oracle(const TreeOptions& tree, std::vector<double> profile = {}) const {
    return {tree, [this, profile] {
              DrafterSet set;
              set.push_back(std::make_unique<OracleDrafter>(
                  &answer_, OracleOptions{.profile = profile, .seed = 1, .vocabulary = kTinyVocabulary}));
              return set;
            }};
  }

  Speculation counting(const TreeOptions& tree, CountingDrafter::Calls& calls) const {
    return {tree, [&calls] {
              DrafterSet set;
              set.push_back(std::make_unique<CountingDrafter>(calls));
              return set;
            }};
  }
};

TEST_F(SpeculativeDecoder, AnOracleOfDepthFiveDividesTheTeachersStepsBySix) {
  for (TreeShape shape : {TreeShape::chain, TreeShape::dynamic}) {
    Decoder decoder(model_, {.context = 256}, oracle({.shape = shape, .nodes = 16, .depth = 5}));
    const auto result = decoder.generate(prompt_, {.max_tokens = 181});
    EXPECT_EQ(result.tokens, expected(181));
    EXPECT_EQ(result.rounds(), 180 / 6) << "the first token comes from the prompt, each step brings six";
    EXPECT_THAT(result.accept_lengths, Each(5));
    EXPECT_EQ(result.accept_length(), 5.0);
  }
}

TEST_F(SpeculativeDecoder, PlainDecodingTakesAStepForEveryToken) {
  Decoder decoder(model_, {.context = 256});
  const auto result = decoder.generate(prompt_, {.max_tokens = 31});
  EXPECT_EQ(result.rounds(), 30);
  EXPECT_THAT(result.accept_lengths, Each(0));
}

TEST_F(SpeculativeDecoder, EveryTokenIsTheFirstOrCountedByARound) {
  Decoder decoder(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.8, 0.6}));
  const auto result = decoder.generate(prompt_, {.max_tokens = 100});
  std::int64_t tokens = 1;
  for (std::int64_t accepted : result.accept_lengths) tokens += accepted + 1;
  EXPECT_EQ(tokens, 100);
  EXPECT_GT(result.accept_length(), 0.5);
}

TEST_F(SpeculativeDecoder, ABudgetOfOneAsksTheDrafterForNothing) {
  CountingDrafter::Calls calls;
  Decoder decoder(model_, {.context = 64}, counting({.nodes = 1}, calls));
  EXPECT_EQ(decoder.generate(prompt_, {.max_tokens = 10}).tokens, expected(10));
  EXPECT_EQ(calls.rounds, 0);
  EXPECT_EQ(calls.ended, 0);
  EXPECT_EQ(calls.committed.size(), prompt_.size() + 9) << "it still hears what is committed";
}

TEST_F(SpeculativeDecoder, ABudgetOfTwoIsOneDraftPassAndNoExpansion) {
  CountingDrafter::Calls calls;
  Decoder decoder(model_, {.context = 64}, counting({.nodes = 2, .depth = 6}, calls));
  EXPECT_EQ(decoder.generate(prompt_, {.max_tokens = 10}).tokens, expected(10));
  EXPECT_EQ(calls.passes, calls.rounds);
  EXPECT_EQ(calls.ended, calls.rounds);
  EXPECT_THAT(calls.nodes, Each(1u));
}

TEST_F(SpeculativeDecoder, ATreeIsNoDeeperThanTheAnswerMayStillGet) {
  std::vector<int> depths;
  GenerateEvents events;
  events.on_round = [&](const Round& round) { depths.push_back(round.tree.depth()); };
  CountingDrafter::Calls calls;
  Decoder decoder(model_, {.context = 64}, counting({.shape = TreeShape::chain, .nodes = 16, .depth = 3}, calls));
  decoder.generate(prompt_, {.max_tokens = 6}, events);
  EXPECT_EQ(depths.back(), 0) << "one token is missing: the root's own draw";
  EXPECT_EQ(calls.rounds, static_cast<int>(depths.size()) - 1);
}

TEST_F(SpeculativeDecoder, ATreeFitsBetweenTheLastTokenAndTheEndOfTheContext) {
  Decoder plain(model_, {.context = 20});
  const auto expected_result = plain.generate(prompt_, {.max_tokens = 100});
  for (const Speculation& speculation : {oracle({.nodes = 64, .depth = 12, .expand = 8}),
                                         oracle({.shape = TreeShape::chain, .nodes = 64, .depth = 12})}) {
    Decoder decoder(model_, {.context = 20, .invariants = true}, speculation);
    const auto result = decoder.generate(prompt_, {.max_tokens = 100});
    EXPECT_EQ(result.tokens, expected_result.tokens);
    EXPECT_EQ(result.finish_reason, FinishReason::context_limit);
    EXPECT_EQ(decoder.cache().length(decoder.sequence()), 20);
  }
}

TEST_F(SpeculativeDecoder, AStopInsideAnAcceptedPathCutsTheCacheThere) {
  Decoder decoder(model_, {.context = 256}, oracle({.nodes = 16, .depth = 10}));
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) { return ++heard < 5; };
  const auto result = decoder.generate(prompt_, {.max_tokens = 100}, events);
  EXPECT_EQ(result.finish_reason, FinishReason::stopped);
  EXPECT_EQ(result.tokens, expected(5));
  EXPECT_EQ(heard, 5);
  EXPECT_EQ(decoder.cache().length(decoder.sequence()), static_cast<std::int64_t>(prompt_.size()) + 4);
  EXPECT_EQ(decoder.generate(prompt_, {.max_tokens = 20}).tokens, expected(20)) << "and it can go on from there";
}

TEST_F(SpeculativeDecoder, ListenersSeeTheWholeRound) {
  std::vector<std::int32_t> heard;
  std::int64_t prefix = 0, rounds = 0;
  std::optional<FinishReason> finish;
  GenerateEvents events;
  events.on_round = [&](const Round& round) {
    EXPECT_EQ(round.number, rounds++);
    if (round.number == 0) prefix = round.prefix;
    EXPECT_EQ(round.prefix, prefix);
    EXPECT_EQ(round.visits.front().node, 0);
    EXPECT_EQ(round.tree[0].token, answer_.tokens[static_cast<std::size_t>(prefix)]);
    for (std::size_t i = 0; i < round.visits.size(); ++i) {
      heard.push_back(round.visits[i].token);
      if (i == 0) continue;
      EXPECT_EQ(round.tree[round.visits[i].node].token, round.visits[i - 1].token);
    }
    EXPECT_GT(round.times.verify, 0);
    prefix += round.accepted() + 1;
    finish = round.finish;
  };
  Decoder decoder(model_, {.context = 256}, oracle({.nodes = 12, .depth = 4}, {0.7}));
  const auto result = decoder.generate(prompt_, {.max_tokens = 60}, events);
  EXPECT_EQ(heard, std::vector(result.tokens.begin() + 1, result.tokens.end()));
  EXPECT_EQ(rounds, result.rounds());
  EXPECT_EQ(finish, FinishReason::token_limit);
}

TEST_F(SpeculativeDecoder, AnExceptionOfAListenerLeavesAUsableDecoder) {
  Decoder decoder(model_, {.context = 256, .kv = {.check = true}}, oracle({.nodes = 16, .depth = 5}));
  int heard = 0;
  GenerateEvents events;
  events.on_token = [&](const GeneratedToken&) -> bool {
    if (++heard == 4) throw std::runtime_error("the listener fell asleep");
    return true;
  };
  EXPECT_THROW(decoder.generate(prompt_, {.max_tokens = 50}, events), std::runtime_error);
  EXPECT_EQ(decoder.cache().length(decoder.sequence()), static_cast<std::int64_t>(prompt_.size()))
      << "the round it happened in was rolled back";
  EXPECT_EQ(decoder.generate(prompt_, {.max_tokens = 50}).tokens, expected(50));
}

TEST_F(SpeculativeDecoder, SequencesOfOneStepAreCommittedAndRolledBackIndependently) {
  const std::vector<std::int32_t> other = {7, 7, 8};
  Decoder alone(model_, {.context = 64});
  const auto expected_other = alone.generate(other, {.max_tokens = 9}).tokens;
  Decoder decoder(model_, {.context = 64, .lanes = 2, .kv = {.check = true}}, oracle({.nodes = 16, .depth = 5}));
  const std::vector<GenerateRequest> requests = {{.prompt = prompt_, .options = {.max_tokens = 30}},
                                                 {.prompt = other, .options = {.max_tokens = 9}}};
  const auto results = decoder.generate(requests);
  EXPECT_EQ(results[0].tokens, expected(30)) << "the oracle knows this one";
  EXPECT_EQ(results[1].tokens, expected_other) << "and not this one";
  EXPECT_EQ(results[0].rounds(), 5);
  EXPECT_EQ(results[1].rounds(), 8);
}

TEST_F(SpeculativeDecoder, EagerAttentionWithListsIsRefused) {
  EXPECT_THROW(Decoder(model_, {.attention = AttentionOp::eager, .mask = MaskChoice::list}), InputError);
  EXPECT_EQ(Decoder(model_, {.attention = AttentionOp::eager}).form().mask, MaskForm::dense);
  EXPECT_EQ(Decoder(model_, {}).form().mask, MaskForm::list);
}

TEST_F(SpeculativeDecoder, AFastCommitWritesOnlyRowsThatAreNotInPlace) {
  Decoder chain(model_, {.context = 256}, oracle({.shape = TreeShape::chain, .nodes = 6, .depth = 5}));
  chain.generate(prompt_, {.max_tokens = 61});
  EXPECT_EQ(chain.cache().counts().bytes_committed, 0) << "a chain is always in place";
  Decoder tree(model_, {.context = 256}, oracle({.nodes = 16, .depth = 5}));
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

TEST_F(SpeculativeDecoder, WithAChosenBudgetTheTextIsTheSameAndEveryRoundTellsHowItWasChosen) {
  for (double slope : {0.0, 0.05, 0.3, 2.0}) {
    Speculation speculation = oracle({.nodes = 24, .depth = 8}, {0.8, 0.6, 0.7});
    speculation.budget = budget_of(slope);
    Decoder decoder(model_, {.context = 256, .invariants = true}, speculation);
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
    const auto result = decoder.generate(prompt_, {.max_tokens = 100}, events);
    EXPECT_EQ(result.tokens, expected(100)) << "slope " << slope;
    EXPECT_EQ(result.verified_rows, rows);
    EXPECT_EQ(result.rounds(), rounds);
  }
}

TEST_F(SpeculativeDecoder, WhereRowsAreDearEveryRoundIsPlain) {
  Speculation speculation = oracle({.nodes = 24, .depth = 8});
  speculation.budget = budget_of(1.0);
  Decoder decoder(model_, {.context = 256}, speculation);
  const auto result = decoder.generate(prompt_, {.max_tokens = 60});
  EXPECT_EQ(result.plain_rounds, result.rounds());
  EXPECT_EQ(result.verified_rows, 59);
}

TEST_F(SpeculativeDecoder, WhereRowsCostNothingAnOracleIsBelievedToTheLastLevel) {
  Speculation speculation = oracle({.shape = TreeShape::chain, .nodes = 24, .depth = 5});
  speculation.budget = budget_of(0.0);
  Decoder decoder(model_, {.context = 256}, speculation);
  const auto result = decoder.generate(prompt_, {.max_tokens = 181});
  EXPECT_EQ(result.rounds(), 180 / 6);
  EXPECT_EQ(result.plain_rounds, 0);
}

TEST_F(SpeculativeDecoder, OfGuessesThatAreHardlyEverTakenFewAreVerified) {
  Speculation speculation{{.nodes = 24, .depth = 6}, [] {
                            DrafterSet set;
                            set.push_back(std::make_unique<HostileDrafter>(1, kTinyVocabulary));
                            return set;
                          }};
  speculation.budget = budget_of(0.2);
  Decoder decoder(model_, {.context = 256}, speculation);
  decoder.generate(prompt_, {.max_tokens = 100});
  const auto later = decoder.generate(prompt_, {.max_tokens = 150});
  EXPECT_LT(later.verified_rows, 149 * 3 / 2) << "what was learned holds for the next answer too";
}

TEST_F(SpeculativeDecoder, SeveralLanesShareTheRowsOfAStep) {
  Speculation speculation = oracle({.nodes = 16, .depth = 4}, {0.7});
  speculation.budget = budget_of(0.1);
  Decoder decoder(model_, {.context = 256, .lanes = 3, .invariants = true}, speculation);
  const std::vector<std::int32_t> other = {7, 7, 8};
  const auto expected_other = Decoder(model_, {.context = 256}).generate(other, {.max_tokens = 40}).tokens;
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
  const auto results = decoder.generate(requests);
  EXPECT_EQ(results[0].tokens, expected(60));
  EXPECT_EQ(results[1].tokens, expected_other);
  EXPECT_EQ(results[2].tokens, expected(25));
  EXPECT_GT(together, 3);
  EXPECT_LE(together, 48);
}

TEST_F(SpeculativeDecoder, WithoutStepTimesMeasuresThemOnceAndTellsThem) {
  Speculation speculation = oracle({.nodes = 8, .depth = 3});
  std::vector<StepTimes> told;
  double now = 0;
  speculation.budget = ChosenBudget{.on_measured = [&](const StepTimes& times) { told.push_back(times); },
                                    .clock = [&] { return now += 1e-5; }};  // however slow the machine is
  Decoder decoder(model_, {.context = 100}, speculation);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].usable());
  EXPECT_EQ(told[0].rows.back(), 8);
  EXPECT_EQ(told[0].contexts, std::vector<std::int64_t>{64}) << "the second context does not fit";
  const Decoder unmeasured(model_, {.context = 100}, oracle({.nodes = 8, .depth = 3}));
  EXPECT_EQ(decoder.cache().free_positions(), unmeasured.cache().free_positions()) << "measuring leaves nothing behind";
  EXPECT_EQ(decoder.generate(prompt_, {.max_tokens = 80}).tokens, expected(80));
  speculation.budget->times = told[0];
  const Decoder again(model_, {.context = 100}, speculation);
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(again.budget()->costs().measured(), told[0]);
  speculation.budget->times = StepTimes{.rows = {1}, .contexts = {0}, .seconds = {-1}};
  const Decoder damaged(model_, {.context = 100}, speculation);
  EXPECT_EQ(told.size(), 2u) << "a damaged table is none";
}

TEST_F(SpeculativeDecoder, MeasuresFewerStepsWhereEachTakesLong) {
  double now = 0;
  std::optional<StepTimes> told;
  Speculation speculation = oracle({.nodes = 64, .depth = 3});
  speculation.budget = ChosenBudget{.on_measured = [&](const StepTimes& times) { told = times; },
                                    .clock = [&] { return now += 0.1; }};  // a step seems to take 0.1 s
  const Decoder decoder(model_, {.context = 256}, speculation);
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(told->usable());
  EXPECT_LT(told->rows.size(), 6u);
  EXPECT_GE(told->rows.size(), 2u);
}

TEST_F(SpeculativeDecoder, TreesThatAreKnownAreVerifiedAsTheyAre) {
  std::vector<TokenTree> given, seen;
  const auto source = [&](std::span<const std::int32_t> tokens) {
    TokenTree tree(tokens.back());
    tree.append(0, {.token = 3, .score = -9});
    tree.append(0, {.token = answer_.tokens[tokens.size()], .score = -9.5, .sources = 4});  // right, but worse
    tree.append(2, {.token = 7, .score = -10});
    given.push_back(tree);
    return tree;
  };
  Decoder decoder(model_, {.context = 256, .invariants = true}, {.tree = {.nodes = 4}, .trees = source});
  const auto result = decoder.generate(prompt_, {.max_tokens = 20},
                                       {.on_round = [&](const Round& round) { seen.push_back(round.tree); }});
  EXPECT_EQ(result.tokens, expected(20));
  EXPECT_EQ(seen, given);
  EXPECT_GE(result.accept_length(), 0.9);
}

TEST_F(SpeculativeDecoder, TreesThatAreKnownAreNotForABudgetToCut) {
  const Speculation both{
      .tree = {.nodes = 4}, .budget = budget_of(0.1), .trees = [](auto tokens) { return TokenTree(tokens.back()); }};
  EXPECT_THROW(Decoder(model_, {.context = 64}, both).generate(prompt_, {.max_tokens = 4}), std::logic_error);
}

TEST_F(SpeculativeDecoder, ATreeBelowAnotherTokenThanTheRootIsOurMistake) {
  Decoder decoder(model_, {.context = 64},
                  {.tree = {.nodes = 4}, .trees = [](auto tokens) { return TokenTree(tokens.back() + 1); }});
  EXPECT_THROW(decoder.generate(prompt_, {.max_tokens = 4}), std::logic_error);
}

TEST_F(SpeculativeDecoder, AnAnswerThatHasBegunGoesOnAsIfItHadBeenDrawn) {
  const GenerateOptions options{
      .sampling = {.presence_penalty = 0.5f, .temperature = 0.8f}, .seed = 3, .max_tokens = 24};
  Decoder decoder(model_, {.context = 256});
  const auto whole = decoder.generate(prompt_, options).tokens;
  for (std::size_t begun : {1u, 2u, 11u, 24u}) {
    Decoder fresh(model_, {.context = 256});
    for (Decoder* one : {&fresh, &decoder}) {  // with and without the text in its cache
      const auto result =
          one->generate({.prompt = prompt_, .options = options, .answered = std::span(whole).first(begun)});
      EXPECT_EQ(result.tokens, whole) << begun;
      EXPECT_EQ(result.rounds(), static_cast<std::int64_t>(24 - begun));
    }
  }
}

TEST_F(SpeculativeDecoder, CopiedBytesAreToldByRound) {
  for (CacheStrategy strategy : {CacheStrategy::shared, CacheStrategy::replicate}) {
    Decoder decoder(model_, {.context = 256, .kv = {.strategy = strategy}}, oracle({.nodes = 8, .depth = 3}, {0.5}));
    decoder.generate(prompt_, {.max_tokens = 1});
    const KvCounts before = decoder.cache().counts();
    KvTraffic sum;
    const auto observe = [&](const Round& round) {
      sum.branched += round.kv.branched;
      sum.committed += round.kv.committed;
    };
    decoder.generate({.prompt = prompt_,
                      .options = {.max_tokens = 40},
                      .events = {.on_round = observe},
                      .answered = std::span(answer_.tokens).subspan(prompt_.size(), 1)});
    const KvCounts& after = decoder.cache().counts();
    EXPECT_EQ(sum.branched, after.bytes_branched - before.bytes_branched);
    EXPECT_EQ(sum.committed, after.bytes_committed - before.bytes_committed);
    EXPECT_EQ(sum.branched > 0, strategy == CacheStrategy::replicate);
  }
}

TEST_F(SpeculativeDecoder, AFailureIsToldWithTheStateOfItsRound) {
  Decoder decoder(model_, {.context = 64}, {.tree = {.nodes = 4}, .trees = [&](auto tokens) {
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
  EXPECT_THROW(decoder.generate(prompt_, {.max_tokens = 9}, {.on_failure = observe}), DeviceError);
  EXPECT_EQ(stages, std::vector{AnswerStage::draft});
}

}  // namespace
}  // namespace espalier
