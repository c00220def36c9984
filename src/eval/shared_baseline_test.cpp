#include "eval/shared_baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/complaint.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

TurnRecord turn(std::int64_t number, std::string set = "mine") {
  return {.set = std::move(set),
          .prompt_id = "p",
          .turn = number,
          .prompt = {1, 2},
          .tokens = {3, 4},
          .finish_reason = "stop",
          .seconds = {1, 2}};
}

TEST(SharedBaseline, ARunWithoutABaselineIsOneItself) {
  const SharedBaseline shared(std::vector{turn(1), turn(2)});
  const BaselineTurn found = shared.find(turn(2));
  EXPECT_EQ(found.tokens, (std::vector{3, 4}));
  EXPECT_EQ(found.finish_reason, "stop");
  EXPECT_EQ(found.seconds.whole(), 3);
}

TEST(SharedBaseline, OfARunThatHadOneItIsTaken) {
  TurnRecord both = turn(1);
  both.baseline = BaselineTurn{{4, 5}, {6}, "length", TurnSeconds{1, 1}};
  const BaselineTurn found = SharedBaseline(std::vector{both}).find(turn(1));
  EXPECT_EQ(found.tokens, (std::vector{6}));
  EXPECT_EQ(found.seconds.whole(), 9);
  EXPECT_FALSE(found.retimed) << "what was timed again beside another run";
}

TEST(SharedBaseline, ATurnThatIsNotThereOrAnsweredAnotherPromptIsRefused) {
  const SharedBaseline shared(std::vector{turn(1), turn(2)});
  EXPECT_THAT(complaint([&] { shared.find(turn(1, "yours")); }), HasSubstr("prompt \"p\", turn 1: not there"));
  EXPECT_THAT(complaint([&] { shared.find(turn(3)); }), HasSubstr("turn 3: not there"));
  TurnRecord other = turn(1);
  other.prompt = {1, 3};
  EXPECT_THAT(complaint([&] { shared.find(other); }), HasSubstr("its prompt has other tokens"));
  other.turn = 2;
  EXPECT_EQ(shared.find(other).tokens, (std::vector{3, 4})) << "the history may differ after a turn that did";
}

}  // namespace
}  // namespace espalier
