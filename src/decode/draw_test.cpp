#include "decode/draw.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace espalier {
namespace {

TEST(Draw, StopTokensAreBannedUntilThereAreEnoughTokens) {
  const GenerateOptions options{.stop_tokens = {4, 7}, .min_tokens = 2};
  for (std::int64_t answered : {0, 1})
    EXPECT_EQ(std::ssize(banned_tokens(options, answered)), 2) << answered << " tokens are there";
  EXPECT_TRUE(banned_tokens(options, 2).empty());
  EXPECT_TRUE(banned_tokens({.stop_tokens = {4}}, 0).empty()) << "nobody asked for it";
}

TEST(Draw, TheLargestLogitIsEnoughOnlyWhereNothingIsBannedAndNobodyWantsTheOthers) {
  EXPECT_TRUE(largest_decides(GenerateOptions{}, 0));
  EXPECT_FALSE(largest_decides({.logprobs = 0}, 0));
  EXPECT_FALSE(largest_decides({.sampling = {.temperature = 1}}, 0));
  const GenerateOptions options{.stop_tokens = {4}, .min_tokens = 3};
  EXPECT_FALSE(largest_decides(options, 2));
  EXPECT_TRUE(largest_decides(options, 3));
  EXPECT_TRUE(largest_decides({.min_tokens = 3}, 0)) << "there is nothing to ban";
  EXPECT_TRUE(largest_decides({.prompt_logprobs = 5}, 0)) << "they are of other rows";
}

TEST(Draw, ADrawIsTheSamplersAtItsPlaceInTheAnswer) {
  const std::vector<float> logits = {1, 3, 2, 2.5f};
  const std::vector<std::int32_t> path = {9, 9, 0};  // two tokens of prompt, one of answer
  GenerateOptions options{.stop_tokens = {1}, .min_tokens = 2};
  EXPECT_EQ(draw_token(logits, options, {path, 2}), 3);
  EXPECT_EQ(draw_token(logits, options, {path, 1}), 1) << "two tokens are answered";
  options.sampling = {.temperature = 1.5f};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    options.seed = seed;
    const std::int32_t token = draw_token(logits, options, {path, 2});
    EXPECT_NE(token, 1);
    EXPECT_EQ(token, sample(logits, options.sampling, {path, 2}, uniform(seed, 3), options.stop_tokens));
  }
}

}  // namespace
}  // namespace espalier
