#include "tree/dynamic_growth.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include "base/random.h"
#include "tree/testing/growth_checks.h"
#include "tree/testing/tokens_to.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<std::int32_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A drafter as a pure function of the path: its guesses do not depend on when or whether it is asked.
class FixedDrafter {
 public:
  explicit FixedDrafter(std::uint64_t seed) : seed_(seed) {}

  // Steps of 1/4 with many zeros, so that scores tie all the time; sometimes impossible, NaN, or nothing to say.
  std::vector<DraftToken> guesses(const Tokens& path, int branch) const {
    std::uint64_t state = seed_;
    for (std::int32_t token : path) state = mix64(state + static_cast<std::uint64_t>(token) + 1);
    if (mix64(state) % 17 == 0) branch = static_cast<int>(mix64(state + 1) % static_cast<unsigned>(branch + 1));
    std::vector<DraftToken> guesses;
    for (int i = 0; i < branch; ++i) {
      const std::uint64_t draw = mix64(state + 100 + static_cast<std::uint64_t>(i));
      double log_probability = -0.25 * static_cast<double>(draw % 5);
      if (draw % 61 == 0) log_probability = -kInfinity;
      if (draw % 67 == 0) log_probability = std::nan("");
      guesses.push_back({.token = 10 * i + static_cast<std::int32_t>(draw % 10), .log_probability = log_probability});
    }
    return guesses;
  }

 private:
  std::uint64_t seed_;
};

DynamicGrowth grown(const GrowthOptions& options, const FixedDrafter& drafter) {
  DynamicGrowth growth(5, options, 1);
  while (!growth.done())
    for (int node : std::vector<int>(growth.frontier()))
      growth.add_children(node, drafter.guesses(tokens_to(growth.candidates(), node), growth.branch()));
  return growth;
}

// Growth as eagle3.md section 4 writes it down, in paths, always to the last level; and when the rule would have
// stopped it.
struct NaiveNode {
  Tokens path;
  double score = 0;
};
struct NaiveGrowth {
  std::map<Tokens, double> kept;
  int levels_until_settled = 0;
};

void sort_best_first(std::vector<NaiveNode>& nodes) {
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const NaiveNode& left, const NaiveNode& right) { return left.score > right.score; });
}

bool rule_says_stop(std::vector<NaiveNode> all, const std::vector<NaiveNode>& frontier, std::size_t wanted) {
  if (frontier.empty() || wanted == 0) return true;
  if (all.size() < wanted) return false;
  sort_best_first(all);
  return std::none_of(frontier.begin(), frontier.end(),
                      [&](const NaiveNode& node) { return node.score > all[wanted - 1].score; });
}

NaiveGrowth grow_all_the_way(const GrowthOptions& options, const FixedDrafter& drafter) {
  NaiveGrowth result;
  const auto wanted = static_cast<std::size_t>(options.nodes - 1);
  const int branch = options.branch == 0 ? options.expand : options.branch;
  std::vector<NaiveNode> all, frontier = {{}};
  bool stopped = wanted == 0;
  for (int level = 0; level < options.depth; ++level) {
    std::vector<NaiveNode> added;
    for (const NaiveNode& node : frontier)
      for (const DraftToken& guess : drafter.guesses(node.path, branch)) {
        NaiveNode child = node;
        child.path.push_back(guess.token);
        child.score += std::isnan(guess.log_probability) ? -kInfinity : guess.log_probability;
        added.push_back(child);
      }
    all.insert(all.end(), added.begin(), added.end());
    sort_best_first(added);
    if (added.size() > static_cast<std::size_t>(options.expand)) added.resize(static_cast<std::size_t>(options.expand));
    frontier = added;
    if (!stopped) ++result.levels_until_settled;
    stopped = stopped || rule_says_stop(all, frontier, wanted);
  }
  sort_best_first(all);
  if (all.size() > wanted) all.resize(wanted);
  for (const NaiveNode& node : all) result.kept[node.path] = node.score;
  return result;
}

std::map<Tokens, double> scored_paths(const TokenTree& tree) {
  std::map<Tokens, double> paths;
  for (int node = 1; node < tree.size(); ++node) paths[tokens_to(tree, node)] = tree[node].score;
  return paths;
}

TEST(DynamicGrowth, StoppingEarlyGivesTheTreeOfGrowingAllTheWay) {
  int early = 0, full = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const auto draw = [seed](int what, int count) {
      return static_cast<int>(mix64(1000 * seed + static_cast<std::uint64_t>(what)) % static_cast<unsigned>(count));
    };
    const GrowthOptions options = {.nodes = 1 + draw(0, seed % 3 == 0 ? 64 : 12),
                                   .depth = draw(1, 8),
                                   .expand = 1 + draw(2, 6),
                                   .branch = draw(3, 6)};
    SCOPED_TRACE(fmt::format("seed {}: nodes {} depth {} expand {} branch {}", seed, options.nodes, options.depth,
                             options.expand, options.branch));
    const FixedDrafter drafter(seed);
    const DynamicGrowth growth = grown(options, drafter);
    const NaiveGrowth naive = grow_all_the_way(options, drafter);
    ASSERT_EQ(scored_paths(growth.finish()), naive.kept);
    ASSERT_EQ(growth.levels(), naive.levels_until_settled) << "stops exactly when the rule says so";
    ++(growth.levels() < options.depth ? early : full);
  }
  EXPECT_GT(early, 500);
  EXPECT_GT(full, 500);
}

TEST(DynamicGrowth, OneNodeIsPlainDecodingAndAsksForNothing) {
  const DynamicGrowth growth(5, {.nodes = 1}, 1);
  EXPECT_TRUE(growth.done());
  EXPECT_THAT(growth.frontier(), IsEmpty());
  EXPECT_EQ(growth.finish(), TokenTree(5));
}

TEST(DynamicGrowth, TwoNodesAreOnePassAndNoExpansion) {
  DynamicGrowth growth(5, {.nodes = 2, .depth = 6, .expand = 3}, 1);
  EXPECT_THAT(growth.frontier(), ElementsAre(0));
  growth.add_children(0, std::vector<DraftToken>{{1, -0.5}, {2, -0.1}, {3, -0.1}});
  EXPECT_TRUE(growth.done());
  EXPECT_EQ(growth.levels(), 1);
  const TokenTree tree = growth.finish();
  ASSERT_EQ(tree.size(), 2);
  EXPECT_EQ(tree[1].token, 2);
}

TEST(DynamicGrowth, DepthZeroGrowsNothing) {
  const DynamicGrowth growth(5, {.nodes = 8, .depth = 0}, 1);
  EXPECT_TRUE(growth.done());
  EXPECT_EQ(growth.finish().size(), 1);
}

TEST(DynamicGrowth, DepthCountsDraftPasses) {
  const DynamicGrowth growth = grown({.nodes = 4096, .depth = 3, .expand = 2}, FixedDrafter(2));
  EXPECT_EQ(growth.levels(), 3);
  EXPECT_EQ(growth.finish().depth(), 3);
}

TEST(DynamicGrowth, TooFewCandidatesGiveASmallerTree) {
  DynamicGrowth growth(5, {.nodes = 16, .depth = 2, .expand = 2}, 1);
  growth.add_children(0, std::vector<DraftToken>{{1, -1}});
  EXPECT_THAT(growth.frontier(), ElementsAre(1));
  growth.add_children(1, std::vector<DraftToken>{{1, -1}, {2, -2}});
  EXPECT_TRUE(growth.done());
  EXPECT_EQ(growth.finish().size(), 4);
}

TEST(DynamicGrowth, ADrafterWithNothingToSayEndsIt) {
  DynamicGrowth growth(5, {.nodes = 16, .depth = 6, .expand = 2}, 1);
  growth.add_children(0, {});
  EXPECT_TRUE(growth.done());
  EXPECT_EQ(growth.finish(), TokenTree(5));
}

TEST(DynamicGrowth, MoreCandidatesThanRowsAreNoReasonToStop) {
  DynamicGrowth growth(5, {.nodes = 3, .depth = 6, .expand = 3}, 1);
  growth.add_children(0, std::vector<DraftToken>{{1, -0.1}, {2, -5}, {3, -6}});
  EXPECT_FALSE(growth.done()) << "candidate 1 may have a child better than candidate 2";
  for (int node : std::vector<int>(growth.frontier())) growth.add_children(node, std::vector<DraftToken>{{1, -0.1}});
  EXPECT_TRUE(growth.done());
  const TokenTree tree = growth.finish();
  EXPECT_EQ(tree.depth(), 2);
}

TEST(DynamicGrowth, AFrontierThatOnlyTiesWithTheLowestKeptIsSettled) {
  DynamicGrowth growth(5, {.nodes = 3, .depth = 6, .expand = 2}, 1);
  growth.add_children(0, std::vector<DraftToken>{{1, -1}, {2, -1}});
  EXPECT_TRUE(growth.done());
}

TEST(DynamicGrowth, TheFrontierIsTheBestOfTheLastLevelBestFirst) {
  DynamicGrowth growth(5, {.nodes = 64, .depth = 3, .expand = 2, .branch = 4}, 1);
  growth.add_children(0, std::vector<DraftToken>{{1, -3}, {2, -1}, {3, -2}, {4, -1}});
  EXPECT_THAT(growth.frontier(), ElementsAre(2, 4));
  growth.add_children(2, std::vector<DraftToken>{{1, -9}});
  growth.add_children(4, std::vector<DraftToken>{{1, -8}, {2, -10}});
  EXPECT_THAT(growth.frontier(), ElementsAre(6, 5)) << "candidate 3 is better but not of the last level";
}

TEST(DynamicGrowth, HugeLimitsAreHarmless) {
  const int huge = std::numeric_limits<int>::max();
  DynamicGrowth growth(5, {.nodes = huge, .depth = huge, .expand = huge, .branch = huge}, 1);
  growth.add_children(0, std::vector<DraftToken>{{1, -1}, {2, -1}});
  EXPECT_THAT(growth.frontier(), ElementsAre(1, 2));
  growth.add_children(1, {});
  growth.add_children(2, {});
  EXPECT_TRUE(growth.done());
  EXPECT_EQ(growth.finish().size(), 3);
}

TEST(DynamicGrowth, RefusesChildrenItDidNotAskFor) {
  DynamicGrowth growth(5, {.nodes = 64, .depth = 2, .expand = 2}, 1);
  expect_unasked_children_are_refused(growth);
  EXPECT_THROW(DynamicGrowth(5, {.nodes = 0}, 1), std::logic_error);
  EXPECT_THROW(DynamicGrowth(5, {.depth = -1}, 1), std::logic_error);
  EXPECT_THROW(DynamicGrowth(5, {.expand = 0}, 1), std::logic_error);
}

TEST(DynamicGrowth, UnitesWithAnotherDraftersCandidatesBeforeReranking) {
  DynamicGrowth growth(5, {.nodes = 4, .depth = 1, .expand = 3}, 1);
  growth.add_children(0, std::vector<DraftToken>{{1, -1}, {2, -2}, {3, -3}});
  Candidates both = growth.candidates();
  both.unite(chain(5, std::vector<DraftToken>{{2, -0.5}, {8, -0.5}}, 2));
  const TokenTree tree = both.best(4);
  ASSERT_EQ(tree.size(), 4);
  EXPECT_EQ(tree[1].token, 2);
  EXPECT_EQ(tree[1].score, -0.5);
  EXPECT_EQ(tree[1].sources, 3u);
  EXPECT_EQ(tree[3].token, 8);
  EXPECT_EQ(tree[3].sources, 2u);
}

}  // namespace
}  // namespace espalier
