#include "decode/oracle_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/math.h"
#include "base/random.h"
#include "decode/accept.h"
#include "tree/dynamic_growth.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kOracleVocabulary = 50;

Tokens random_answer(std::uint64_t seed, std::size_t size) {
  Tokens answer;
  for (std::size_t i = 0; i < size; ++i)
    answer.push_back(static_cast<std::int32_t>(mix64(mix64(seed) + i) % kOracleVocabulary));
  return answer;
}

// A drafter that knows one answer, behind a prompt of one token, and a sequence that begins with it.
struct LoneOracle {
  LoneOracle(const Tokens& answer, const OracleOptions& options) : drafter(&known, options) {
    const auto prompt = std::span(answer).first(1);
    known.learn(prompt, std::span(answer).subspan(1));
    sequence = drafter.open(0, prompt);
  }

  bool is_right(std::int64_t position, int depth) const {
    return static_cast<const OracleSequence&>(*sequence).is_right(position, depth);
  }

  KnownAnswers known;
  OracleDrafter drafter;
  std::unique_ptr<DraftSequence> sequence;
};

Tokens prefix(const Tokens& answer, std::size_t size) {
  return {answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(size)};
}

Tokens tokens_of(const std::vector<DraftToken>& guesses) {
  Tokens tokens;
  for (const DraftToken& guess : guesses) tokens.push_back(guess.token);
  return tokens;
}

// The guesses after a path below the root, which is the last of `tokens`.
std::vector<DraftToken> guesses_after(OracleDrafter& drafter, DraftSequence& sequence, const Tokens& tokens,
                                      const Tokens& path, int branch) {
  Candidates candidates(tokens.back());
  int node = 0;
  for (std::int32_t token : path) node = candidates.add(node, {.token = token});
  sequence.begin_round({.tokens = tokens});
  const DraftJob job{&sequence, &candidates, std::span(&node, 1), branch};
  return drafter.expand(std::span(&job, 1)).at(0).at(0);
}
std::vector<DraftToken> guesses_after(LoneOracle& oracle, const Tokens& tokens, const Tokens& path, int branch) {
  return guesses_after(oracle.drafter, *oracle.sequence, tokens, path, branch);
}

TokenTree grown(LoneOracle& oracle, const Tokens& tokens, const GrowthOptions& options) {
  oracle.sequence->begin_round({.tokens = tokens});
  DynamicGrowth growth(tokens.back(), options, 1);
  while (!growth.done()) {
    const std::vector<int> frontier(growth.frontier());
    const DraftJob job{oracle.sequence.get(), &growth.candidates(), frontier, growth.branch()};
    const Guesses lists = oracle.drafter.expand(std::span(&job, 1)).at(0);
    for (std::size_t i = 0; i < frontier.size(); ++i) growth.add_children(frontier[i], lists[i]);
  }
  return growth.finish();
}

// Decodes the answer behind its first `known` tokens; returns the accepted guesses of every round.
std::vector<int> accepted_lengths(LoneOracle& oracle, const Tokens& answer, std::size_t known,
                                  const GrowthOptions& options) {
  std::vector<int> lengths;
  while (known < answer.size()) {
    const TokenTree tree = grown(oracle, prefix(answer, known), options);
    const auto draw = [&](int node) { return answer[known + static_cast<std::size_t>(tree[node].depth)]; };
    const auto ends = [&, left = answer.size() - known](std::int32_t) mutable { return --left == 0; };
    lengths.push_back(static_cast<int>(walk(tree, draw, ends).size()) - 1);
    known += static_cast<std::size_t>(lengths.back()) + 1;
  }
  return lengths;
}

TEST(OracleDrafter, WithoutAProfileEveryRoundTakesTheWholeDepthAndTheBonus) {
  const Tokens answer = random_answer(1, 10 + 60);
  LoneOracle oracle(answer, {.vocabulary = kOracleVocabulary});
  for (int nodes : {6, 16, 40}) {
    const auto lengths = accepted_lengths(oracle, answer, 10, {.nodes = nodes, .depth = 5, .expand = 3});
    EXPECT_EQ(lengths, std::vector<int>(10, 5)) << "60 tokens in 10 steps, with rows " << nodes;
  }
}

TEST(OracleDrafter, TheTrueTokenComesFirstThenDecoysOfSmallProbability) {
  const Tokens answer = random_answer(2, 20);
  LoneOracle oracle(answer, {.vocabulary = kOracleVocabulary});
  const auto guesses = guesses_after(oracle, prefix(answer, 8), {answer[8]}, 6);
  ASSERT_EQ(guesses.size(), 6u);
  EXPECT_EQ(guesses[0].token, answer[9]);
  EXPECT_EQ(guesses[0].log_probability, 0);
  for (std::size_t i = 1; i < guesses.size(); ++i) EXPECT_LT(guesses[i].log_probability, log_f64(1e-5));
}

TEST(OracleDrafter, GuessesAreDistinctTokensOfTheVocabularyBestFirst) {
  const Tokens answer = random_answer(3, 200);
  LoneOracle oracle(answer, {.profile = {0.5, 0}, .seed = 9, .vocabulary = kOracleVocabulary});
  for (std::size_t known = 1; known < 200; ++known)
    for (const Tokens& path : {Tokens{}, Tokens{answer[known]}, Tokens{0, 0}}) {
      const auto guesses = guesses_after(oracle, prefix(answer, known), path, kOracleVocabulary);
      const Tokens tokens = tokens_of(guesses);
      ASSERT_EQ(std::set<std::int32_t>(tokens.begin(), tokens.end()).size(), tokens.size());
      for (std::int32_t token : tokens) ASSERT_TRUE(token >= 0 && token < kOracleVocabulary);
      ASSERT_TRUE(std::is_sorted(guesses.begin(), guesses.end(), [](const DraftToken& left, const DraftToken& right) {
        return left.log_probability > right.log_probability;
      }));
    }
}

TEST(OracleDrafter, WhereItIsWrongTheTrueTokenIsNotAmongItsGuesses) {
  const Tokens answer = random_answer(4, 500);
  LoneOracle oracle(answer, {.profile = {0.5}, .seed = 3, .vocabulary = kOracleVocabulary});
  int right = 0;
  for (std::size_t known = 1; known < answer.size(); ++known) {
    const auto guesses = guesses_after(oracle, prefix(answer, known), {}, kOracleVocabulary);
    const Tokens tokens = tokens_of(guesses);
    const bool contains = std::find(tokens.begin(), tokens.end(), answer[known]) != tokens.end();
    ASSERT_EQ(contains, oracle.is_right(static_cast<std::int64_t>(known), 1));
    ASSERT_EQ(guesses[0].log_probability, log_f64(0.5)) << "claimed all the same";
    right += contains;
  }
  EXPECT_GT(right, 200);
  EXPECT_LT(right, 300);
}

TEST(OracleDrafter, VerdictsComeFromSeedPositionAndProfileAlone) {
  const Tokens answer = random_answer(5, 10);
  const LoneOracle oracle(answer, {.profile = {0.9, 0.6, 0.3}, .seed = 7, .vocabulary = kOracleVocabulary});
  for (std::int64_t position = 0; position < 1000; ++position) {
    const double u = uniform(7, static_cast<std::uint64_t>(position));
    ASSERT_EQ(oracle.is_right(position, 1), u < 0.9);
    ASSERT_EQ(oracle.is_right(position, 2), u < 0.6);
    ASSERT_EQ(oracle.is_right(position, 3), u < 0.3);
    ASSERT_EQ(oracle.is_right(position, 99), u < 0.3) << "the last element repeats";
  }
}

TEST(OracleDrafter, AcceptedLengthsFollowTheProfile) {
  const Tokens answer = random_answer(6, 20000);
  const std::vector<double> profile = {0.8, 0.7, 0.6, 0.5};
  LoneOracle oracle(answer, {.profile = profile, .seed = 5, .vocabulary = kOracleVocabulary});
  const GrowthOptions chain = {.nodes = 5, .depth = 4, .expand = 1};
  const auto lengths = accepted_lengths(oracle, answer, 1, chain);
  EXPECT_EQ(accepted_lengths(oracle, answer, 1, chain), lengths) << "exactly reproducible";
  for (std::size_t depth = 1; depth <= profile.size(); ++depth) {
    const auto at_least = [&](std::size_t wanted) {
      return std::count_if(lengths.begin(), lengths.end(),
                           [=](int length) { return static_cast<std::size_t>(length) >= wanted; });
    };
    const auto reached = static_cast<double>(at_least(depth - 1)), accepted = static_cast<double>(at_least(depth));
    const double p = profile[depth - 1];
    EXPECT_NEAR(accepted, reached * p, 6 * std::sqrt(reached * p * (1 - p))) << "depth " << depth << ", six deviations";
  }
}

TEST(OracleDrafter, OffTheAnswersPathThereAreOnlyDecoys) {
  const Tokens answer = {1, 2, 3, 4, 5, 6};
  LoneOracle oracle(answer, {.vocabulary = kOracleVocabulary});
  for (const DraftToken& guess : guesses_after(oracle, {1, 2}, {9, 4}, 4)) {
    EXPECT_NE(guess.token, 5);
    EXPECT_LT(guess.log_probability, log_f64(1e-5));
  }
}

TEST(OracleDrafter, ATextThatLeftTheAnswerGetsOnlyDecoys) {
  const Tokens answer = {1, 2, 3, 4, 5, 6};
  LoneOracle oracle(answer, {.vocabulary = kOracleVocabulary});
  const auto guesses = guesses_after(oracle, {1, 9, 3}, {}, 4);
  EXPECT_EQ(guesses.size(), 4u);
  for (const DraftToken& guess : guesses) EXPECT_LT(guess.log_probability, log_f64(1e-5));
}

TEST(OracleDrafter, BehindTheEndOfTheAnswerItSaysNothing) {
  const Tokens answer = {1, 2, 3, 4};
  LoneOracle oracle(answer, {.vocabulary = kOracleVocabulary});
  EXPECT_THAT(guesses_after(oracle, {1, 2, 3, 4}, {}, 4), IsEmpty());
  EXPECT_THAT(guesses_after(oracle, {1, 2, 3}, {4}, 4), IsEmpty());
  EXPECT_THAT(guesses_after(oracle, {1, 2, 3, 4, 5, 6}, {7}, 4), IsEmpty());
  EXPECT_EQ(guesses_after(oracle, {1, 2}, {3}, 4).size(), 4u);
}

TEST(OracleDrafter, TheAnswerMayBecomeKnownLater) {
  KnownAnswers known;
  OracleDrafter drafter(&known, {.vocabulary = kOracleVocabulary});
  const Tokens prompt = {1, 2};
  const auto early = drafter.open(0, prompt);
  EXPECT_THAT(guesses_after(drafter, *early, prompt, {}, 1), IsEmpty());
  known.learn(prompt, Tokens{3});
  const auto late = drafter.open(1, prompt);
  EXPECT_THAT(tokens_of(guesses_after(drafter, *late, prompt, {}, 1)), ElementsAre(3));
}

TEST(OracleDrafter, EachSequenceReplaysTheAnswerOfItsPrompt) {
  KnownAnswers known;
  const Tokens one = {1, 2}, other = {1, 3};
  known.learn(one, Tokens{10, 11});
  known.learn(other, Tokens{20, 21});
  OracleDrafter drafter(&known, {.vocabulary = kOracleVocabulary});
  const auto first = drafter.open(0, one), second = drafter.open(1, other);
  first->begin_round({.tokens = one});
  second->begin_round({.tokens = other});
  const Candidates below_two(2), below_three(3);
  const std::vector<int> root = {0};
  const std::vector<DraftJob> jobs = {{second.get(), &below_three, root, 2}, {first.get(), &below_two, root, 1}};
  const std::vector<Guesses> all = drafter.expand(jobs);
  ASSERT_EQ(all.size(), 2u);
  ASSERT_EQ(all[0].at(0).size(), 2u);
  EXPECT_EQ(all[0][0][0].token, 20);
  EXPECT_THAT(tokens_of(all[1].at(0)), ElementsAre(10));
}

TEST(OracleDrafter, NeedsNoFeatures) {
  LoneOracle oracle({1, 2, 3}, {.vocabulary = kOracleVocabulary});
  EXPECT_FALSE(oracle.sequence->reused(Tokens{1, 2}));
  EXPECT_THAT(tokens_of(guesses_after(oracle, {1, 2}, {}, 1)), ElementsAre(3));
}

TEST(KnownAnswers, AreFoundByTheirPrompt) {
  KnownAnswers known;
  EXPECT_THAT(known.beginning_with(Tokens{1, 2}), IsEmpty());
  known.learn(Tokens{1, 2}, Tokens{3, 4});
  known.learn(Tokens{5}, Tokens{6});
  EXPECT_THAT(known.beginning_with(Tokens{1, 2}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(known.beginning_with(Tokens{5}), ElementsAre(5, 6));
  EXPECT_THAT(known.beginning_with(Tokens{1, 2, 3}), ElementsAre(1, 2, 3, 4)) << "inside the answer too";
  EXPECT_THAT(known.beginning_with(Tokens{1, 2, 3, 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(known.beginning_with(Tokens{1, 2, 3, 4, 5}), IsEmpty());
  EXPECT_THAT(known.beginning_with(Tokens{2}), IsEmpty());
  EXPECT_THAT(known.beginning_with(Tokens{1, 5}), IsEmpty());
}

TEST(KnownAnswers, ALaterAnswerReplacesThatOfTheSamePromptOnly) {
  KnownAnswers known;
  known.learn(Tokens{1, 2}, Tokens{3});
  known.learn(Tokens{1}, Tokens{2, 7});
  EXPECT_THAT(known.beginning_with(Tokens{1, 2}), ElementsAre(1, 2, 3)) << "its own";
  EXPECT_THAT(known.beginning_with(Tokens{1}), ElementsAre(1, 2, 7));
  EXPECT_THAT(known.beginning_with(Tokens{1, 2, 3}), ElementsAre(1, 2, 3)) << "of another prompt, still known";
  known.learn(Tokens{1, 2}, Tokens{4, 5});
  EXPECT_THAT(known.beginning_with(Tokens{1, 2}), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(known.beginning_with(Tokens{1, 2, 3}), IsEmpty()) << "replaced";
  EXPECT_THAT(known.beginning_with(Tokens{1, 2, 7}), ElementsAre(1, 2, 7));
}

TEST(OracleDrafter, AVocabularyOfOneHasNoWrongTokens) {
  const Tokens answer = {0, 0, 0};
  LoneOracle right(answer, {.vocabulary = 1}), wrong(answer, {.profile = {0}, .vocabulary = 1});
  EXPECT_THAT(tokens_of(guesses_after(right, {0}, {}, 4)), ElementsAre(0));
  EXPECT_THAT(guesses_after(wrong, {0}, {}, 4), IsEmpty());
}

TEST(OracleDrafter, RefusesAProfileThatIsNoProbability) {
  const KnownAnswers known;
  for (double bad : {-0.1, 1.5, std::nan("")})
    EXPECT_THROW(OracleDrafter(&known, {.profile = {0.5, bad}, .vocabulary = 4}), InputError) << bad;
  EXPECT_THROW(OracleDrafter(&known, {.vocabulary = 0}), std::logic_error);
  EXPECT_THROW(OracleDrafter(nullptr, {.vocabulary = 4}), std::logic_error);
}

}  // namespace
}  // namespace espalier
