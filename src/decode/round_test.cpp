#include "decode/round.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

// Root 1 with the guesses 5 and 6; 7 below 5.
TokenTree small_tree() {
  TokenTree tree(1);
  tree.append(0, {.token = 5, .score = -1});
  tree.append(0, {.token = 6, .score = -2});
  tree.append(1, {.token = 7, .score = -3});
  return tree;
}

const std::vector<Visit> kNothingAccepted = {{.node = 0, .token = 9}};
const std::vector<Visit> kOneAccepted = {{.node = 0, .token = 5}, {.node = 1, .token = 9}};
const std::vector<Visit> kLeafAccepted = {{.node = 0, .token = 6}, {.node = 2, .token = 9}};

TEST(JudgedLevels, AreOneMoreThanAcceptedWhereGuessesWereRejected) {
  EXPECT_EQ(judged_levels(small_tree(), kNothingAccepted, false), 1);
  EXPECT_EQ(judged_levels(small_tree(), kOneAccepted, false), 2);
}

TEST(JudgedLevels, EndWithALeafAndWithTheAnswer) {
  EXPECT_EQ(judged_levels(small_tree(), kLeafAccepted, false), 1) << "there was no guess below it";
  EXPECT_EQ(judged_levels(small_tree(), kOneAccepted, true), 1) << "the guess below it was not looked at";
  EXPECT_EQ(judged_levels(TokenTree(1), kNothingAccepted, false), 0) << "plain decoding guesses nothing";
}

TEST(CountLevels, CountsEveryDepthUpToTheLast) {
  std::vector<std::int64_t> counts;
  for (std::int64_t levels : {2, 0, 3, 1}) count_levels(levels, counts);
  EXPECT_EQ(counts, (std::vector<std::int64_t>{3, 2, 1}));
}

}  // namespace
}  // namespace espalier
