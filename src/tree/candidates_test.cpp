#include "tree/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tree/testing/random_tree.h"
#include "tree/testing/tokens_to.h"

namespace espalier {
namespace {

using Tokens = std::vector<std::int32_t>;

using PathMap = std::map<Tokens, std::pair<double, SourceSet>>;

PathMap sourced_paths(const TokenTree& tree) {
  PathMap paths;
  for (int node = 1; node < tree.size(); ++node) paths[tokens_to(tree, node)] = {tree[node].score, tree[node].sources};
  return paths;
}

TEST(Candidates, ADuplicateKeepsTheLargerScoreAndBothSources) {
  Candidates candidates(9);
  const int first = candidates.add(0, {.token = 1, .score = -2, .sources = 1});
  EXPECT_EQ(candidates.add(0, {.token = 1, .score = -1, .sources = 2}), first);
  EXPECT_EQ(candidates.add(0, {.token = 1, .score = -3, .sources = 4}), first);
  EXPECT_EQ(candidates.size(), 2);
  EXPECT_EQ(candidates[first].score, -1);
  EXPECT_EQ(candidates[first].sources, 7u);
}

TEST(Candidates, NoScoreExceedsTheParents) {
  Candidates candidates(9);
  const int parent = candidates.add(0, {.token = 1, .score = -2});
  EXPECT_EQ(candidates[candidates.add(parent, {.token = 1, .score = -1})].score, -2);
  EXPECT_EQ(candidates[candidates.add(0, {.token = 2, .score = 5})].score, 0);
  const int broken = candidates.add(0, {.token = 3, .score = std::nan("")});
  EXPECT_EQ(candidates[broken].score, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(candidates[candidates.add(broken, {.token = 3, .score = -1})].score, candidates[broken].score);
  EXPECT_THROW(candidates.add(candidates.size(), {}), std::logic_error);
  EXPECT_THROW(candidates.add(-1, {}), std::logic_error);
}

TEST(Candidates, TheBestAreFlattenedBreadthFirstWithSiblingsBestFirst) {
  Candidates candidates(9);
  const int low = candidates.add(0, {.token = 1, .score = -2});
  const int high = candidates.add(0, {.token = 2, .score = -1});
  candidates.add(low, {.token = 3, .score = -2});
  candidates.add(high, {.token = 4, .score = -3});
  candidates.add(high, {.token = 5, .score = -1.5});
  TokenTree expected(9);
  expected.append(0, {.token = 2, .score = -1});
  expected.append(0, {.token = 1, .score = -2});
  expected.append(1, {.token = 5, .score = -1.5});
  expected.append(2, {.token = 3, .score = -2});
  EXPECT_EQ(candidates.best(5), expected);
  EXPECT_EQ(candidates.best(1), TokenTree(9));
  EXPECT_EQ(candidates.best(1000).size(), 6) << "what cannot be filled is left to padding";
  EXPECT_THROW(candidates.best(0), std::logic_error);
}

TEST(Candidates, AmongEqualsTheOlderIsKept) {
  Candidates candidates(9);
  for (int token = 0; token < 10; ++token) candidates.add(0, {.token = token, .score = -1});
  const TokenTree tree = candidates.best(4);
  for (int node = 1; node < 4; ++node) EXPECT_EQ(tree[node].token, node - 1);
}

TEST(Candidates, AnyNumberOfBestContainsTheParentsAndLeavesNothingBetterOut) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const TokenTree all = random_tree(seed, 1 + static_cast<int>(seed));
    Candidates candidates(all[0].token);
    candidates.unite(all);
    std::vector<double> scores;
    for (int id = 1; id < candidates.size(); ++id) scores.push_back(candidates[id].score);
    std::sort(scores.rbegin(), scores.rend());
    for (int rows = 1; rows <= candidates.size(); rows += 7) {
      const TokenTree tree = candidates.best(rows);  // append() would refuse a node without its parent
      ASSERT_EQ(tree.size(), rows);
      std::vector<double> kept;
      for (int node = 1; node < rows; ++node) kept.push_back(tree[node].score);
      std::sort(kept.rbegin(), kept.rend());
      ASSERT_TRUE(std::equal(kept.begin(), kept.end(), scores.begin()));
    }
  }
}

// The union as a map from paths: too simple to be wrong.
TEST(Candidates, UnitingTreesEqualsAMapOfPaths) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Candidates candidates(3);
    PathMap expected;
    for (int drafter = 0; drafter < 3; ++drafter) {
      Candidates own(3);
      for (int i = 0; i < 60; ++i) {
        const int parent = static_cast<int>(random() % static_cast<unsigned>(own.size()));
        const double step = 0.5 * static_cast<double>(random() % 3);
        own.add(parent, {.token = static_cast<std::int32_t>(random() % 4),
                         .score = own[parent].score - step,
                         .sources = 1u << drafter});
      }
      for (const auto& [path, value] : sourced_paths(own.best(own.size()))) {
        const auto [known, added] = expected.emplace(path, value);
        known->second = {std::max(known->second.first, value.first), known->second.second | value.second};
      }
      if (drafter == 1)
        candidates.unite(own.best(own.size()));
      else
        candidates.unite(own);
    }
    ASSERT_EQ(sourced_paths(candidates.best(candidates.size())), expected);
  }
}

TEST(Candidates, TreesWithDifferentRootsAreNotUnited) {
  Candidates candidates(3);
  EXPECT_THROW(candidates.unite(TokenTree(4)), std::logic_error);
}

}  // namespace
}  // namespace espalier
