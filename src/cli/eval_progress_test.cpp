#include "cli/eval_progress.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(EvalProgress, TheTimeLeftFollowsFromTheTurnsOfThisProcessAlone) {
  EXPECT_EQ(eval_progress_line(40, 160, 10, 30, 85.25), "40 of 160 turns, 3.0 s each, 85.2 tokens/s, 6 min 0 s left");
  EXPECT_EQ(eval_progress_line(40, 160, 0, 30, 0), "40 of 160 turns, 0.0 s each, 0.0 tokens/s, 0 s left");
}

}  // namespace
}  // namespace espalier
