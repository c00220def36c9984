#include "decode/oracle_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

KnownAnswer random_answer(std::uint64_t seed, std::size_t size) {
  KnownAnswer answer;
  for (std::size_t i = 0; i < size; ++i)
    answer.tokens.push_back(static_cast<std::int32_t>(mix64(mix64(seed) + i) % kOracleVocabulary));
  return answer;
}

Tokens prefix(const KnownAnswer& answer, std::size_t size) {
  return {answer.tokens.begin(), answer.tokens.begin() + static_cast<std::ptrdiff_t>(size)};
}

Tokens tokens_of(const std::vector<DraftToken>& guesses) {
  Tokens tokens;
  for (const DraftToken& guess : guesses) tokens.push_back(guess.token);
  return tokens;
}

// The guesses after a path below the root, which is the last of `tokens`.
std::vector<DraftToken> guesses_after(OracleDrafter& drafter, const Tokens& tokens, const Tokens& path, int branch) {
  Candidates candidates(tokens.back());
  int node = 0;
  for (std::int32_t token : path) node = candidates.add(node, {.token = token});
  drafter.begin_round(tokens);
  return drafter.expand(candidates, std::span(&node, 1), branch).at(0);
}

TokenTree grown(OracleDrafter& drafter, const Tokens& tokens, const GrowthOptions& options) {
  drafter.begin_round(tokens);
  DynamicGrowth growth(tokens.back(), options, 1);
  while (!growth.done()) {
    const std::vector<int> frontier(growth.frontier());
    const auto lists = drafter.expand(growth.candidates(), frontier, growth.branch());
    for (std::size_t i = 0; i < frontier.size(); ++i) growth.add_children(frontier[i], lists[i]);
  }
  return growth.finish();
}

// Decodes the answer behind its first `known` tokens; returns the accepted guesses of every round.
std::vector<int> accepted_lengths(OracleDrafter& drafter, const KnownAnswer& answer, std::size_t known,
                                  const GrowthOptions& options) {
  std::vector<int> lengths;
  while (known < answer.tokens.size()) {
    const TokenTree tree = grown(drafter, prefix(answer, known), options);
    const auto draw = [&](int node) { return answer.tokens[known + static_cast<std::size_t>(tree[node].depth)]; };
    const auto ends = [&, left = answer.tokens.size() - known](std::int32_t) mutable { return --left == 0; };
    lengths.push_back(static_cast<int>(walk(tree, draw, ends).size()) - 1);
    known += static_cast<std::size_t>(lengths.back()) + 1;
  }
  return lengths;
}

TEST(OracleDrafter, WithoutAProfileEveryRoundTakesTheWholeDepthAndTheBonus) {
  const KnownAnswer answer = random_answer(1, 10 + 60);
  OracleDrafter drafter(&answer, {.vocabulary = kOracleVocabulary});
  for (int nodes : {6, 16, 40}) {
    const auto lengths = accepted_lengths(drafter, answer, 10, {.nodes = nodes, .depth = 5, .expand = 3});
    EXPECT_EQ(lengths, std::vector<int>(10, 5)) << "60 tokens in 10 steps, with rows " << nodes;
  }
}

TEST(OracleDrafter, TheTrueTokenComesFirstThenDecoysOfSmallProbability) {
  const KnownAnswer answer = random_answer(2, 20);
  OracleDrafter drafter(&answer, {.vocabulary = kOracleVocabulary});
  const auto guesses = guesses_after(drafter, prefix(answer, 8), {answer.tokens[8]}, 6);
  ASSERT_EQ(guesses.size(), 6u);
  EXPECT_EQ(guesses[0].token, answer.tokens[9]);
  EXPECT_EQ(guesses[0].log_probability, 0);
  for (std::size_t i = 1; i < guesses.size(); ++i) EXPECT_LT(guesses[i].log_probability, log_f64(1e-5));
}

TEST(OracleDrafter, GuessesAreDistinctTokensOfTheVocabularyBestFirst) {
  const KnownAnswer answer = random_answer(3, 200);
  OracleDrafter drafter(&answer, {.profile = {0.5, 0}, .seed = 9, .vocabulary = kOracleVocabulary});
  for (std::size_t known = 1; known < 200; ++known)
    for (const Tokens& path : {Tokens{}, Tokens{answer.tokens[known]}, Tokens{0, 0}}) {
      const auto guesses = guesses_after(drafter, prefix(answer, known), path, kOracleVocabulary);
      const Tokens tokens = tokens_of(guesses);
      ASSERT_EQ(std::set<std::int32_t>(tokens.begin(), tokens.end()).size(), tokens.size());
      for (std::int32_t token : tokens) ASSERT_TRUE(token >= 0 && token < kOracleVocabulary);
      ASSERT_TRUE(std::is_sorted(guesses.begin(), guesses.end(), [](const DraftToken& left, const DraftToken& right) {
        return left.log_probability > right.log_probability;
      }));
    }
}

TEST(OracleDrafter, WhereItIsWrongTheTrueTokenIsNotAmongItsGuesses) {
  const KnownAnswer answer = random_answer(4, 500);
  OracleDrafter drafter(&answer, {.profile = {0.5}, .seed = 3, .vocabulary = kOracleVocabulary});
  int right = 0;
  for (std::size_t known = 1; known < answer.tokens.size(); ++known) {
    const auto guesses = guesses_after(drafter, prefix(answer, known), {}, kOracleVocabulary);
    const Tokens tokens = tokens_of(guesses);
    const bool contains = std::find(tokens.begin(), tokens.end(), answer.tokens[known]) != tokens.end();
    ASSERT_EQ(contains, drafter.is_right(static_cast<std::int64_t>(known), 1));
    ASSERT_EQ(guesses[0].log_probability, log_f64(0.5)) << "claimed all the same";
    right += contains;
  }
  EXPECT_GT(right, 200);
  EXPECT_LT(right, 300);
}

TEST(OracleDrafter, VerdictsComeFromSeedPositionAndProfileAlone) {
  const KnownAnswer answer = random_answer(5, 10);
  const OracleDrafter drafter(&answer, {.profile = {0.9, 0.6, 0.3}, .seed = 7, .vocabulary = kOracleVocabulary});
  for (std::int64_t position = 0; position < 1000; ++position) {
    const double u = uniform(7, static_cast<std::uint64_t>(position));
    ASSERT_EQ(drafter.is_right(position, 1), u < 0.9);
    ASSERT_EQ(drafter.is_right(position, 2), u < 0.6);
    ASSERT_EQ(drafter.is_right(position, 3), u < 0.3);
    ASSERT_EQ(drafter.is_right(position, 99), u < 0.3) << "the last element repeats";
  }
}

TEST(OracleDrafter, AcceptedLengthsFollowTheProfile) {
  const KnownAnswer answer = random_answer(6, 20000);
  const std::vector<double> profile = {0.8, 0.7, 0.6, 0.5};
  OracleDrafter drafter(&answer, {.profile = profile, .seed = 5, .vocabulary = kOracleVocabulary});
  const GrowthOptions chain = {.nodes = 5, .depth = 4, .expand = 1};
  const auto lengths = accepted_lengths(drafter, answer, 1, chain);
  EXPECT_EQ(accepted_lengths(drafter, answer, 1, chain), lengths) << "exactly reproducible";
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
  const KnownAnswer answer = {{1, 2, 3, 4, 5, 6}};
  OracleDrafter drafter(&answer, {.vocabulary = kOracleVocabulary});
  for (const DraftToken& guess : guesses_after(drafter, {1, 2}, {9, 4}, 4)) {
    EXPECT_NE(guess.token, 5);
    EXPECT_LT(guess.log_probability, log_f64(1e-5));
  }
}

TEST(OracleDrafter, ATextThatLeftTheAnswerGetsOnlyDecoys) {
  const KnownAnswer answer = {{1, 2, 3, 4, 5, 6}};
  OracleDrafter drafter(&answer, {.vocabulary = kOracleVocabulary});
  const auto guesses = guesses_after(drafter, {1, 9, 3}, {}, 4);
  EXPECT_EQ(guesses.size(), 4u);
  for (const DraftToken& guess : guesses) EXPECT_LT(guess.log_probability, log_f64(1e-5));
}

TEST(OracleDrafter, BehindTheEndOfTheAnswerItSaysNothing) {
  const KnownAnswer answer = {{1, 2, 3, 4}};
  OracleDrafter drafter(&answer, {.vocabulary = kOracleVocabulary});
  EXPECT_THAT(guesses_after(drafter, {1, 2, 3, 4}, {}, 4), IsEmpty());
  EXPECT_THAT(guesses_after(drafter, {1, 2, 3}, {4}, 4), IsEmpty());
  EXPECT_THAT(guesses_after(drafter, {1, 2, 3, 4, 5, 6}, {7}, 4), IsEmpty());
  EXPECT_EQ(guesses_after(drafter, {1, 2}, {3}, 4).size(), 4u);
}

TEST(OracleDrafter, TheAnswerMayBecomeKnownLater) {
  KnownAnswer answer;
  OracleDrafter drafter(&answer, {.vocabulary = kOracleVocabulary});
  EXPECT_THAT(guesses_after(drafter, {1, 2}, {}, 1), IsEmpty());
  answer.tokens = {1, 2, 3};
  EXPECT_THAT(tokens_of(guesses_after(drafter, {1, 2}, {}, 1)), ElementsAre(3));
}

TEST(OracleDrafter, AVocabularyOfOneHasNoWrongTokens) {
  const KnownAnswer answer = {{0, 0, 0}};
  OracleDrafter right(&answer, {.vocabulary = 1}), wrong(&answer, {.profile = {0}, .vocabulary = 1});
  EXPECT_THAT(tokens_of(guesses_after(right, {0}, {}, 4)), ElementsAre(0));
  EXPECT_THAT(guesses_after(wrong, {0}, {}, 4), IsEmpty());
}

TEST(OracleDrafter, RefusesAProfileThatIsNoProbability) {
  const KnownAnswer answer;
  for (double bad : {-0.1, 1.5, std::nan("")})
    EXPECT_THROW(OracleDrafter(&answer, {.profile = {0.5, bad}, .vocabulary = 4}), InputError) << bad;
  EXPECT_THROW(OracleDrafter(&answer, {.vocabulary = 0}), std::logic_error);
  EXPECT_THROW(OracleDrafter(nullptr, {.vocabulary = 4}), std::logic_error);
}

}  // namespace
}  // namespace espalier
