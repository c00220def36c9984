#include "tree/token_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

using testing::ElementsAre;

TEST(TokenTree, BeginsAsTheRootAlone) {
  const TokenTree tree(7);
  EXPECT_EQ(tree.size(), 1);
  EXPECT_EQ(tree.depth(), 0);
  EXPECT_EQ(tree[0].token, 7);
  EXPECT_EQ(tree[0].parent, 0);
  EXPECT_EQ(tree[0].score, 0);
  EXPECT_THAT(tree.path(0), ElementsAre(0));
  EXPECT_THAT(tree.leaves(), ElementsAre(0));
  EXPECT_EQ(tree.child(0, 7), std::nullopt);
}

TEST(TokenTree, KnowsChildrenPathsAndLeaves) {
  TokenTree tree(7);
  EXPECT_EQ(tree.append(0, {.token = 1, .score = -1, .sources = 1}), 1);
  EXPECT_EQ(tree.append(0, {.token = 2, .score = -2, .sources = 2}), 2);
  EXPECT_EQ(tree.append(1, {.token = 2, .score = -1, .sources = 3}), 3);
  EXPECT_EQ(tree.append(2, {.token = 1, .score = -5, .sources = 1}), 4);
  EXPECT_EQ(tree.depth(), 2);
  EXPECT_EQ(tree.child(0, 2), 2);
  EXPECT_EQ(tree.child(1, 2), 3);
  EXPECT_EQ(tree.child(1, 1), std::nullopt);
  EXPECT_THAT(tree.path(4), ElementsAre(0, 2, 4));
  EXPECT_THAT(tree.leaves(), ElementsAre(3, 4));
  EXPECT_EQ(tree[3].sources, 3u);
}

TEST(TokenTree, RefusesWhatIsNotBreadthFirst) {
  TokenTree tree(7);
  tree.append(0, {.token = 1});
  tree.append(1, {.token = 2});
  EXPECT_THROW(tree.append(0, {.token = 3}), std::logic_error);  // level 1 is closed
  EXPECT_THROW(tree.append(3, {.token = 3}), std::logic_error);
  EXPECT_THROW(tree.append(-1, {.token = 3}), std::logic_error);
  EXPECT_EQ(tree.size(), 3);
}

TEST(TokenTree, RefusesTwoChildrenWithOneToken) {
  TokenTree tree(7);
  tree.append(0, {.token = 1});
  EXPECT_THROW(tree.append(0, {.token = 1}), std::logic_error);
  EXPECT_EQ(tree.append(0, {.token = 7}), 2);  // the root's own token may follow it
}

TEST(TokenTree, RefusesAScoreAboveTheParentsAndNan) {
  TokenTree tree(7);
  EXPECT_THROW(tree.append(0, {.token = 1, .score = 0.1}), std::logic_error);
  EXPECT_THROW(tree.append(0, {.token = 1, .score = std::nan("")}), std::logic_error);
  tree.append(0, {.token = 1, .score = -std::numeric_limits<double>::infinity()});
  EXPECT_THROW(tree.append(1, {.token = 1, .score = -9}), std::logic_error);
}

TEST(TokenTree, RandomTreesAreBreadthFirstWithDistinctSiblings) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const int nodes = 1 + static_cast<int>(seed * 37 % 256);
    const TokenTree tree = random_tree(seed, nodes);
    ASSERT_EQ(tree.size(), nodes);
    std::set<std::pair<int, int>> seen;
    for (int node = 1; node < nodes; ++node) {
      ASSERT_LT(tree[node].parent, node);
      ASSERT_GE(tree[node].parent, tree[node - 1].parent);
      ASSERT_EQ(tree[node].depth, tree[tree[node].parent].depth + 1);
      ASSERT_LE(tree[node].score, tree[tree[node].parent].score);
      ASSERT_TRUE(seen.emplace(tree[node].parent, tree[node].token).second);
      ASSERT_EQ(tree.child(tree[node].parent, tree[node].token), node);
    }
  }
}

TEST(TokenTree, AChainIsATreeOfWidthOne) {
  const std::vector<DraftToken> guesses = {{5, -0.5}, {5, -0.25}, {6, 0.001}, {7, std::nan("")}, {8, -1}};
  const TokenTree tree = chain(9, guesses, 2);
  ASSERT_EQ(tree.size(), 6);
  EXPECT_EQ(tree.depth(), 5);
  for (int node = 1; node < 6; ++node) EXPECT_EQ(tree[node].parent, node - 1);
  EXPECT_EQ(tree[2].score, -0.75);
  EXPECT_EQ(tree[3].score, -0.75) << "rounding above certainty counts as certainty";
  EXPECT_EQ(tree[5].score, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(tree[4].sources, 2u);
  EXPECT_EQ(chain(9, {}, 2), TokenTree(9));
}

}  // namespace
}  // namespace espalier
