#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/math.h"

namespace espalier {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int32_t greedy(std::vector<float> logits, const SamplingOptions& options = {}, TokenPath path = {}) {
  return sample(logits, options, path, 0.5);
}

// The probability of each id, found by walking u over a fine grid.
std::vector<double> distribution(const std::vector<float>& logits, const SamplingOptions& options,
                                 TokenPath path = {}) {
  constexpr int kGrid = 20000;
  std::vector<double> p(logits.size());
  for (int i = 0; i < kGrid; ++i)
    p[static_cast<std::size_t>(sample(logits, options, path, (i + 0.5) / kGrid))] += 1.0 / kGrid;
  return p;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(greedy({1, 3, 3, 2}), 1);
  EXPECT_EQ(greedy({5, 5}), 0);
}

TEST(Sampler, NanCountsAsMinusInfinity) {
  EXPECT_EQ(greedy({kNan, -5, kNan, -7}), 1);
  EXPECT_EQ(greedy({-kInfinity, -1e30f}), 1);
}

TEST(Sampler, NoFiniteLogitOrPlusInfinityIsAnError) {
  EXPECT_THROW(greedy({kNan, kNan}), InputError);
  EXPECT_THROW(greedy({-kInfinity}), InputError);
  EXPECT_THROW(greedy({0, kInfinity}), InputError);
}

TEST(Sampler, TheLargestLogitDecidesWhereNothingChangesLogitsAndNothingIsRandom) {
  EXPECT_TRUE(largest_decides({}));
  EXPECT_TRUE(largest_decides({.top_k = 3, .top_p = 0.5f, .min_p = 0.1f})) << "they only cut what is not the largest";
  EXPECT_FALSE(largest_decides({.temperature = 0.5f}));
  EXPECT_FALSE(largest_decides({.logit_bias = {{1, 0.0f}}}));
  EXPECT_FALSE(largest_decides({.repeat_penalty = 1.1f}));
  EXPECT_FALSE(largest_decides({.presence_penalty = 0.1f}));
  EXPECT_FALSE(largest_decides({.frequency_penalty = -0.1f}));
}

TEST(Sampler, BannedIdsAreNeverDrawn) {
  const std::vector<float> logits = {1, 5, 4, kNan};
  const std::vector<std::int32_t> banned = {1, 1, 3, -1, 99};  // what lies outside the vocabulary bans nothing
  EXPECT_EQ(sample(logits, {}, {}, 0, banned), 2);
  EXPECT_EQ(sample(logits, {.logit_bias = {{1, 100.0f}}}, {}, 0, banned), 2) << "no bias brings them back";
  for (double u : {0.0, 0.3, 0.6, 0.99}) EXPECT_NE(sample(logits, {.temperature = 3}, {}, u, banned), 1) << u;
  EXPECT_THROW(sample(logits, {}, {}, 0, std::vector<std::int32_t>{0, 1, 2}), InputError) << "nothing is left";
}

TEST(Sampler, TheLargestLogitAloneIsDrawnOrRefusedLikeAllOfThem) {
  EXPECT_EQ(sample_largest(-1.5f, 7), 7);
  EXPECT_THROW(sample_largest(kInfinity, 7), InputError);
  EXPECT_THROW(sample_largest(-kInfinity, 7), InputError);
}

TEST(Sampler, ProbabilitiesAreTheSoftmaxAtTheTemperature) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f};
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    double total = 0;
    for (float logit : logits) total += std::exp(logit / temperature);
    const auto p = distribution(logits, {.temperature = temperature});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(p[i], std::exp(logits[i] / temperature) / total, 2e-4);
  }
}

TEST(Sampler, AVerySmallTemperatureIsGreedy) {
  for (double u : {0.0, 0.3, 0.999999}) {
    EXPECT_EQ(sample(std::vector<float>{10, 50, 49}, {.temperature = 1e-30f}, {}, u), 1);
  }
}

TEST(Sampler, CandidatesAreVisitedByLogitThenId) {
  const std::vector<float> logits = {1, 2, 2, 0};
  EXPECT_EQ(sample(logits, {.temperature = 1}, {}, 0.0), 1);
  EXPECT_EQ(sample(logits, {.temperature = 1}, {}, 0.5), 2);
  EXPECT_EQ(sample(logits, {.temperature = 1}, {}, 0.9999), 3);
}

TEST(Sampler, TopKKeepsTheKLargestAndBreaksTiesByLowestId) {
  const auto p = distribution({1, 1, 1, 0}, {.temperature = 1, .top_k = 2});
  EXPECT_NEAR(p[0], 0.5, 1e-3);
  EXPECT_NEAR(p[1], 0.5, 1e-3);
  EXPECT_EQ(p[2], 0);
  EXPECT_EQ(p[3], 0);
}

TEST(Sampler, TopPKeepsTheFewestThatReachP) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto p = distribution(logits, {.temperature = 1, .top_p = 0.7f});
  EXPECT_NEAR(p[0], 0.5 / 0.8, 1e-3);
  EXPECT_NEAR(p[1], 0.3 / 0.8, 1e-3);
  EXPECT_EQ(p[2] + p[3], 0);
  EXPECT_NEAR(distribution(logits, {.temperature = 1, .top_p = 0.01f})[0], 1.0, 1e-9) << "at least one id is kept";
}

TEST(Sampler, TopPSeesWhatTopKLeft) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.4f), std::log(0.2f)};
  const auto p = distribution(logits, {.temperature = 1, .top_k = 2, .top_p = 0.5f});
  EXPECT_NEAR(p[0], 1.0, 1e-3) << "0.4 of the remaining 0.8 is half";
}

TEST(Sampler, MinPKeepsWhatHasItsShareOfTheLargest) {
  const std::vector<float> logits = {std::log(0.6f), std::log(0.3f), std::log(0.1f)};
  const auto p = distribution(logits, {.temperature = 1, .min_p = 0.4f});
  EXPECT_NEAR(p[0], 2.0 / 3, 1e-3);
  EXPECT_NEAR(p[1], 1.0 / 3, 1e-3);
  EXPECT_EQ(p[2], 0);
}

TEST(Sampler, BiasComesBeforePenalties) {
  const std::vector<std::int32_t> tokens = {1};
  // 1 + 2 = 3, divided by 2: below the untouched 2.
  EXPECT_EQ(greedy({2, 1}, {.logit_bias = {{1, 2.0f}}, .repeat_penalty = 2}, {tokens, 1}), 0);
  EXPECT_EQ(greedy({2, 1}, {.logit_bias = {{1, 2.0f}}}, {tokens, 1}), 1);
  EXPECT_EQ(greedy({2, 1}, {.logit_bias = {{0, -kInfinity}}}), 1) << "minus infinity bans a token";
}

TEST(Sampler, RepetitionSeesThePromptTheOthersOnlyTheAnswer) {
  const std::vector<std::int32_t> tokens = {0, 1, 1};
  const TokenPath path{tokens, 1};
  EXPECT_EQ(greedy({3, 1, 2}, {.repeat_penalty = 2}, path), 2) << "0 is in the prompt: 1.5 against 2";
  EXPECT_EQ(greedy({3, 1, 2}, {.presence_penalty = 2}, path), 0) << "0 is not in the answer";
  EXPECT_EQ(greedy({0, 3, 2.5f}, {.presence_penalty = 0.4f}, path), 1);
  EXPECT_EQ(greedy({0, 3, 2.5f}, {.frequency_penalty = 0.4f}, path), 2) << "1 occurs twice: 3 - 0.8";
  EXPECT_EQ(greedy({-3, -2, -4}, {.repeat_penalty = 3}, path), 2) << "negative logits are multiplied";
}

TEST(Sampler, EveryOptionOutsideItsRangeIsNamed) {
  const auto message = [](const SamplingOptions& options) {
    try {
      check_options(options);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({.temperature = -1}), "--temperature: expected 0 to 100, got -1");
  EXPECT_EQ(message({.top_p = 0}), "--top-p: expected above 0 to 1, got 0");
  EXPECT_NE(message({.temperature = kNan}), "");
  EXPECT_NE(message({.top_k = -1}), "");
  EXPECT_NE(message({.min_p = 2}), "");
  EXPECT_NE(message({.repeat_penalty = 0}), "");
  EXPECT_EQ(message({}), "");
}

// However the list is sorted underneath, the draw follows a plain reading of the contract.
TEST(Sampler, AgreesWithANaiveSamplerOnRandomInput) {
  const std::uint32_t seed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(1 + random() % 700);
    for (float& logit : logits) logit = static_cast<float>(static_cast<int>(random() % 64)) / 8;
    const double u = unit(random);
    std::vector<std::int32_t> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    double total = 0, sum = 0;
    const float largest = logits[static_cast<std::size_t>(order[0])];
    for (float logit : logits) total += std::exp(double{logit} - double{largest});
    std::int32_t expected = order.back();
    for (std::int32_t id : order) {
      sum += std::exp(double{logits[static_cast<std::size_t>(id)]} - double{largest});
      if (sum > u * total) {
        expected = id;
        break;
      }
    }
    EXPECT_EQ(sample(logits, {.temperature = 1}, {}, u), expected) << "u " << u;
  }
}

TEST(Sampler, GreedyWithAndWithoutPenaltiesFindsTheFirstOfTheLargestInAnyCompany) {
  std::mt19937 random(6);
  for (int round = 0; round < 500; ++round) {
    std::vector<float> logits(1 + random() % 100);
    for (float& logit : logits) {
      const auto kind = random() % 8;
      logit = kind == 0   ? std::nanf("")
              : kind == 1 ? -INFINITY
                          : static_cast<float>(static_cast<int>(random() % 9)) - 4;
    }
    logits[random() % logits.size()] = 4;
    const auto expected = std::find(logits.begin(), logits.end(), 4.0f) - logits.begin();
    EXPECT_EQ(sample(logits, {}, {}, 0.5), expected);
    EXPECT_EQ(sample(logits, {.presence_penalty = 0.5f}, {}, 0.5), expected) << "no answer yet, nothing to penalise";
  }
}

// Weights of 1 and of about 8.5e-17, less than half an ulp of 1: lost one by one beside the 1, two together are not.
TEST(Logprobs, TheTotalIsSummedIn256LanesAndThenInHalves) {
  const auto log_total = [](std::vector<std::size_t> small) {
    std::vector<float> logits(1024, -kInfinity);
    logits[0] = 0;
    for (std::size_t id : small) logits[id] = -37;
    return -logprobs(logits, 0, 0).chosen.logprob;
  };
  const double together = log_f64(1.0 + 2 * double{exp_f32(-37.0f)});
  ASSERT_NE(together, 0.0);
  EXPECT_EQ(log_total({256, 512, 768}), 0.0) << "the lane of the 1";
  EXPECT_EQ(log_total({1, 257}), together) << "a lane of their own";
  EXPECT_EQ(log_total({3, 131}), together) << "lanes that meet before they meet the 1";
  EXPECT_EQ(log_total({128, 64, 32, 16, 8, 4, 2, 1}), 0.0) << "each meets lane 0 alone";
}

TEST(Logprobs, AreTheLogSoftmaxOfTheRawLogits) {
  const std::vector<float> logits = {0, 1, 2, 1};
  const Logprobs result = logprobs(logits, 0, 3);
  const double total = 1 + 2 * std::exp(1.0) + std::exp(2.0);
  EXPECT_NEAR(result.chosen.logprob, -std::log(total), 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].token, 2);
  EXPECT_EQ(result.top[1].token, 1) << "lowest id first among equals";
  EXPECT_EQ(result.top[2].token, 3);
  EXPECT_NEAR(result.top[0].logprob, 2 - std::log(total), 1e-6);
}

}  // namespace
}  // namespace espalier
