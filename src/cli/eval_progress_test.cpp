#include "cli/eval_progress.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(EvalProgress, DurationsAreSaidInTheTwoUnitsThatMatter) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1 min 0 s");
  EXPECT_EQ(duration_text(429), "7 min 9 s");
  EXPECT_EQ(duration_text(2 * 3600 + 5 * 60 + 59), "2 h 5 min");
}

TEST(EvalProgress, TheTimeLeftFollowsFromTheTurnsOfThisProcessAlone) {
  EXPECT_EQ(eval_progress_line(40, 160, 10, 30, 85.25), "40 of 160 turns, 3.0 s each, 85.2 tokens/s, 6 min 0 s left");
  EXPECT_EQ(eval_progress_line(40, 160, 0, 30, 0), "40 of 160 turns, 0.0 s each, 0.0 tokens/s, 0 s left");
}

}  // namespace
}  // namespace espalier
