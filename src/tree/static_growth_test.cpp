#include "tree/static_growth.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>

#include "base/random.h"
#include "tree/dynamic_growth.h"
#include "tree/testing/growth_checks.h"
#include "tree/testing/tokens_to.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Guesses = std::vector<DraftToken>;
using Path = ChoiceTree::Path;
using Tokens = std::vector<std::int32_t>;

// What a drafter says after a path of tokens, the root not among them.
using Drafter = std::function<Guesses(const Tokens&)>;

// The worked example of medusa.md, section 3.4.
ChoiceTree example() {
  return ChoiceTree({{0}, {0, 0}, {1}, {0, 1}, {0, 0, 0}}, {}, "example");
}

// Head d guesses the tokens 100 * d + 101, 100 * d + 102, ..., whatever stands above, as Medusa's heads do.
Drafter heads(int count, int ranks) {
  return [=](const Tokens& above) {
    const int head = static_cast<int>(above.size());
    Guesses guesses;
    for (int rank = 0; head < count && rank < ranks; ++rank)
      guesses.push_back({100 * head + 101 + rank, -0.5 * (rank + 1)});
    return guesses;
  };
}

// The loop that drives either kind of growth.
template <typename Growth>
void grow(Growth& growth, const Drafter& drafter) {
  while (!growth.done())
    for (int node : std::vector<int>(growth.frontier())) {
      Guesses guesses = drafter(tokens_to(growth.candidates(), node));
      if (guesses.size() > static_cast<std::size_t>(growth.branch())) guesses.resize(growth.branch());
      growth.add_children(node, guesses);
    }
}

TokenTree grown(const ChoiceTree& shape, const Drafter& drafter, SourceSet sources = 1) {
  StaticGrowth growth(100, shape, sources);
  grow(growth, drafter);
  return growth.finish();
}

Tokens tokens_of(const TokenTree& tree) {
  Tokens tokens;
  for (const TreeNode& node : tree.nodes()) tokens.push_back(node.token);
  return tokens;
}

TEST(StaticGrowth, FillsEachRowWithTheGuessOfItsDepthAndRank) {
  const TokenTree tree = grown(example(), heads(3, 10), 2);
  EXPECT_THAT(tokens_of(tree), ElementsAre(100, 101, 102, 201, 202, 301));
  EXPECT_EQ(tree[4].parent, 1);
  EXPECT_EQ(tree[4].score, -0.5 - 1.0);
  EXPECT_EQ(tree[4].sources, 2u);
}

TEST(StaticGrowth, AsksOnlyWhereTheShapeGoesOn) {
  const ChoiceTree shape = example();
  StaticGrowth growth(100, shape, 1);
  EXPECT_EQ(growth.branch(), 2);
  EXPECT_THAT(growth.frontier(), ElementsAre(0));
  growth.add_children(0, Guesses{{101, -1}, {102, -2}});
  EXPECT_EQ(growth.levels(), 1);
  EXPECT_THAT(growth.frontier(), ElementsAre(1)) << "candidate 2 is a leaf of the shape";
  growth.add_children(1, Guesses{{201, -1}, {202, -2}});
  EXPECT_THAT(growth.frontier(), ElementsAre(3));
  growth.add_children(3, Guesses{{301, -1}, {302, -2}});
  EXPECT_TRUE(growth.done());
  EXPECT_THAT(growth.frontier(), IsEmpty());
  EXPECT_EQ(growth.levels(), 3);
  EXPECT_EQ(growth.candidates().size(), 6) << "302 has no row";
}

TEST(StaticGrowth, LeavesOutRowsWhoseGuessIsMissingWithAllBelow) {
  const auto one_guess_below = [](const Tokens& above) {
    Guesses guesses = heads(3, 10)(above);
    if (above.size() == 1) guesses.resize(1);
    return guesses;
  };
  EXPECT_THAT(tokens_of(grown(example(), one_guess_below)), ElementsAre(100, 101, 102, 201, 301));
  EXPECT_EQ(grown(example(), heads(2, 10)).size(), 5);
  EXPECT_EQ(grown(example(), heads(0, 10)), TokenTree(100));
}

TEST(StaticGrowth, LeavesOutATokenThatASiblingOfLowerRankCarries) {
  const ChoiceTree shape({{0}, {1}, {1, 0}, {2}, {2, 0}}, {}, "example");
  const auto drafter = [](const Tokens& above) {
    return above.empty() ? Guesses{{7, -2}, {7, -1}, {8, -3}} : Guesses{{9, -1}};
  };
  const TokenTree tree = grown(shape, drafter);
  EXPECT_THAT(tokens_of(tree), ElementsAre(100, 7, 8, 9));
  EXPECT_EQ(tree[1].score, -2) << "a row that is left out changes nothing";
  EXPECT_EQ(tree[3].parent, 2);
}

TEST(StaticGrowth, AShapeOfTheRootAloneAsksForNothing) {
  const ChoiceTree shape({}, {}, "empty");
  const StaticGrowth growth(5, shape, 1);
  EXPECT_TRUE(growth.done());
  EXPECT_EQ(growth.finish(), TokenTree(5));
}

TEST(StaticGrowth, RowsKeepTheOrderOfTheShapeWhateverTheScores) {
  const ChoiceTree shape({{0}, {1}, {2}}, {}, "flat");
  const auto drafter = [](const Tokens&) { return Guesses{{7, -3}, {8, -1}, {9, std::nan("")}}; };
  const TokenTree tree = grown(shape, drafter);
  EXPECT_THAT(tokens_of(tree), ElementsAre(100, 7, 8, 9));
  EXPECT_EQ(tree[3].score, -std::numeric_limits<double>::infinity());
}

TEST(StaticGrowth, RefusesChildrenItDidNotAskFor) {
  const ChoiceTree shape({{0}, {1}, {0, 0}, {1, 0}}, {}, "example");
  StaticGrowth growth(5, shape, 1);
  expect_unasked_children_are_refused(growth);
}

// A shape that is the whole tree of `branch` to the power of `depth` is what dynamic growth without a limit makes.
TEST(StaticGrowth, AFullShapeEqualsDynamicGrowthWithoutLimits) {
  std::vector<Path> choices;
  for (int a = 0; a < 3; ++a) {
    choices.push_back({a});
    for (int b = 0; b < 3; ++b) {
      choices.push_back({a, b});
      for (int c = 0; c < 3; ++c) choices.push_back({a, b, c});
    }
  }
  const ChoiceTree shape(choices, {}, "full");
  DynamicGrowth dynamic(100, {.nodes = 1000, .depth = 3, .expand = 1000, .branch = 3}, 1);
  grow(dynamic, heads(3, 3));
  EXPECT_EQ(grown(shape, heads(3, 3)).size(), dynamic.finish().size());
  StaticGrowth growth(100, shape, 1);
  grow(growth, heads(3, 3));
  EXPECT_EQ(growth.candidates().best(1000), dynamic.finish());
  EXPECT_EQ(growth.levels(), dynamic.levels());
}

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}
  int below(int count) { return static_cast<int>(mix64(seed_ += 0x9e37) % static_cast<unsigned>(count)); }

 private:
  std::uint64_t seed_;
};

std::vector<Path> random_choices(Draw draw) {
  std::vector<Path> choices = {{}};
  const int wanted = draw.below(60);
  for (int i = 0; i < wanted; ++i) {
    Path path = choices[static_cast<std::size_t>(draw.below(static_cast<int>(choices.size())))];
    path.push_back(draw.below(6));
    if (path.size() <= 5 && std::find(choices.begin(), choices.end(), path) == choices.end()) choices.push_back(path);
  }
  choices.erase(choices.begin());
  return choices;
}

// Depends on the path; sometimes fewer guesses than asked for, sometimes a token twice.
Guesses random_guesses(std::uint64_t seed, const Tokens& above) {
  for (std::int32_t token : above) seed = mix64(seed + static_cast<std::uint64_t>(token) + 1);
  Draw draw(seed);
  Guesses guesses(static_cast<std::size_t>(draw.below(9)));
  for (DraftToken& guess : guesses) guess = {.token = draw.below(20), .log_probability = -0.25 * draw.below(5)};
  return guesses;
}

// The tokens of a row by the rule as the header states it, from the root down; nothing where it is left out.
std::optional<Tokens> tokens_of_row(const std::vector<Path>& choices, const Path& path, std::uint64_t seed) {
  Tokens tokens;
  for (std::size_t level = 0; level < path.size(); ++level) {
    const Guesses guesses = random_guesses(seed, tokens);
    const auto rank = static_cast<std::size_t>(path[level]);
    if (rank >= guesses.size()) return std::nullopt;
    Path sibling(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(level) + 1);
    for (sibling.back() = 0; sibling.back() < path[level]; ++sibling.back())
      if (guesses[static_cast<std::size_t>(sibling.back())].token == guesses[rank].token &&
          std::find(choices.begin(), choices.end(), sibling) != choices.end())
        return std::nullopt;
    tokens.push_back(guesses[rank].token);
  }
  return tokens;
}

TEST(StaticGrowth, HoldsExactlyTheRowsWhosePathsCanBeFilled) {
  int whole = 0, cut = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const std::vector<Path> choices = random_choices(Draw(seed));
    const ChoiceTree shape(choices, {}, "random");
    const TokenTree tree = grown(shape, [seed](const Tokens& above) { return random_guesses(seed, above); });
    std::vector<Tokens> expected;
    for (int row = 1; row < shape.size(); ++row)
      if (const auto tokens = tokens_of_row(choices, shape.path(row), seed)) expected.push_back(*tokens);
    std::vector<Tokens> got;
    for (int node = 1; node < tree.size(); ++node) {
      Tokens tokens;
      for (int step : tree.path(node)) tokens.push_back(tree[step].token);
      got.emplace_back(tokens.begin() + 1, tokens.end());
    }
    ASSERT_EQ(got, expected);
    ++(tree.size() == shape.size() ? whole : cut);
  }
  EXPECT_GT(whole, 50);
  EXPECT_GT(cut, 500);
}

}  // namespace
}  // namespace espalier
