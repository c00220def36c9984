#include "report/trace_text.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "text/token_text.h"
#include "trace/testing/random_turn.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

TEST(TraceText, OfATurnHasALineForEachRoundAndNoneTooWide) {
  constexpr int kWidth = 90;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const TracedTurn turn = random_turn(seed);
    const std::string text = turn_text(1, turn, {}, kWidth);
    // Titles and line of the turn, prompt and answer, titles of the rounds, two empty lines.
    EXPECT_EQ(std::ranges::count(text, '\n'), static_cast<std::ptrdiff_t>(turn.rounds.size()) + 7) << seed;
    std::istringstream rounds(text.substr(text.rfind("\n\n") + 2));
    for (std::string line; std::getline(rounds, line);) EXPECT_LE(display_width(line), kWidth) << seed;
  }
}

TEST(TraceText, WithoutATokenizerIdsAreTheWords) {
  const TraceWords words;
  EXPECT_EQ(words(17), "17");
  const std::vector<std::int32_t> tokens = {5, 17};
  EXPECT_THAT(words.line(tokens), HasSubstr("5 17"));
}

TEST(TraceText, OfARoundSaysWhatItsTimeWentInto) {
  const TracedTurn turn = random_turn(3);
  ASSERT_FALSE(turn.rounds.empty());
  const std::vector<std::string> drafters = {"a", "b", "c", "d", "e", "f", "g", "h"};
  EXPECT_THAT(round_text(turn, turn.rounds[0], {}, drafters, {}), HasSubstr("\nms: "));
}

}  // namespace
}  // namespace espalier
