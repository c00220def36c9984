#include "cli/eval_progress.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(EvalProgress, TheTimeLeftFollowsFromTheTurnsOfThisProcessAlone) {
  EXPECT_EQ(eval_progress_line(40, 160, 10, 30, 85.25), "40 of 160 turns, 3.0 s each, 85.2 tokens/s, 6 min 0 s left");
  EXPECT_EQ(eval_progress_line(40, 160, 0, 30, 0), "40 of 160 turns, 0.0 s each, 0.0 tokens/s, 0 s left");
}

TEST(EvalProgress, ThereIsSomethingToSayBeforeTheFirstTurnIsAnswered) {
  EXPECT_EQ(eval_begin_line(0, 160, 0), "0 of 160 turns, the next one for 0 s");
  EXPECT_EQ(eval_begin_line(40, 160, 75), "40 of 160 turns, the next one for 1 min 15 s");
}

}  // namespace
}  // namespace espalier
