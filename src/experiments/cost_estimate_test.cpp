#include "experiments/cost_estimate.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(CostEstimate, PlainDecodingTakesItsRate) {
  EXPECT_NEAR(estimate_seconds({.turns = 1, .tokens = 2150, .prompt_tokens = 0}), 10, 1e-9);
  EXPECT_NEAR(estimate_seconds({.turns = 0, .tokens = 2150, .prompt_tokens = 0, .plain_turns = 2}), 20, 1e-9);
}

TEST(CostEstimate, StepsGoThroughTheMeasuredPointsAndGrow) {
  EXPECT_NEAR(step_seconds(16), 0.014, 1e-9);
  EXPECT_NEAR(step_seconds(64), 0.045, 1e-9);
  for (int rows = 2; rows <= 256; ++rows) EXPECT_GT(step_seconds(rows), step_seconds(rows - 1));
}

TEST(CostEstimate, NoStepBringsMoreTokensThanItsTreeIsDeep) {
  for (const char* drafter : {"eagle3", "medusa", "ngram"})
    for (int rows : {2, 16, 256})
      for (int depth : {1, 4, 16}) {
        EXPECT_GE(tokens_per_step(drafter, rows, depth), 1);
        EXPECT_LE(tokens_per_step(drafter, rows, depth), 1 + depth);
      }
  EXPECT_EQ(tokens_per_step("", 1, 0), 1);
}

TEST(CostEstimate, DurationsAreSaidInTheTwoUnitsThatMatter) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1 min 0 s");
  EXPECT_EQ(duration_text(429), "7 min 9 s");
  EXPECT_EQ(duration_text(2 * 3600 + 5 * 60 + 59), "2 h 5 min");
}

}  // namespace
}  // namespace espalier
