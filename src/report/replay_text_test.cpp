#include "report/replay_text.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

FailureDump dump_behind_two_tokens() {
  FailureDump dump{.error = "broken", .stage = "verify", .prompt_id = "a\nb", .turn = 2, .round = 1};
  dump.answered = {7, 8};
  return dump;
}

TEST(ReplayText, AnErrorComesAgainOrDoesNot) {
  const FailureDump dump = dump_behind_two_tokens();
  EXPECT_EQ(dump_line(dump), "prompt \"a\\nb\", turn 2, round 1, verify: broken\n");
  EXPECT_EQ(replay_text(dump, {.speculative = {.error = "broken"}, .reproduced = true}),
            "again: no tokens, then: broken\nreproduced: the same error\n");
  EXPECT_EQ(replay_text(dump, {.speculative = {.tokens = {9}, .error = "torn"}}),
            "again: tokens 9, then: torn\nnot reproduced: another error\n");
  EXPECT_EQ(replay_text(dump, {.speculative = {.tokens = {9, 10}}}), "again: tokens 9 10\nnot reproduced: no error\n");
}

TEST(ReplayText, AMismatchNamesBothTokensOrTheEnd) {
  FailureDump dump = dump_behind_two_tokens();
  dump.tree = TokenTree(8);
  DumpReplay replay{.speculative = {.tokens = {3}, .end = FinishReason::token_limit},
                    .plain = RoundOutcome{.tokens = {3, 5}}};
  EXPECT_EQ(replay_text(dump, replay),
            "with the tree: tokens 3\nwithout: tokens 3 5\nnot reproduced: both routes give the same tokens\n");
  replay.difference = 1;
  replay.reproduced = true;
  EXPECT_EQ(replay_text(dump, replay),
            "with the tree: tokens 3\nwithout: tokens 3 5\n"
            "reproduced: token 3 of the answer is the end (length) with speculation, 5 without\n");
}

TEST(ReplayText, ATurnIsIdenticalOrHasAPlaceWhereItDiffers) {
  TracedTurn turn;
  turn.prompt_id = 81;
  EXPECT_EQ(replayed_turn_line(3, turn, {}), "turn 3 (prompt \"81\", turn 1): 0 rounds identical\n");
  EXPECT_EQ(replayed_turn_line(3, turn, TurnDifference{.round = 4, .what = "a, not b"}),
            "turn 3 (prompt \"81\", turn 1): DIFFERS: round 4: a, not b\n");
  EXPECT_EQ(replayed_turn_line(3, turn, TurnDifference{.what = "a, not b"}),
            "turn 3 (prompt \"81\", turn 1): DIFFERS: a, not b\n");
}

}  // namespace
}  // namespace espalier
