#include "tree/choice_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "base/error.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using Path = ChoiceTree::Path;

ChoiceTree from(std::string_view json, const ChoiceTree::Limits& limits = {}) {
  return ChoiceTree::parse(json, limits, "tree.json");
}

std::string refusal(std::string_view json, const ChoiceTree::Limits& limits = {}) {
  try {
    from(json, limits);
  } catch (const InputError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "accepted";
}

std::vector<Path> paths_of(const ChoiceTree& tree) {
  std::vector<Path> paths;
  for (int row = 1; row < tree.size(); ++row) paths.push_back(tree.path(row));
  return paths;
}

// The worked example of medusa.md, section 3.4.
constexpr std::string_view kExample = "[[0], [0, 0], [1], [0, 1], [0, 0, 0]]";

TEST(ChoiceTree, SortsRowsByLengthThenRanks) {
  const ChoiceTree tree = from(kExample);
  EXPECT_EQ(tree.size(), 6);
  EXPECT_EQ(tree.depth(), 3);
  EXPECT_THAT(paths_of(tree), ElementsAre(Path{0}, Path{1}, Path{0, 0}, Path{0, 1}, Path{0, 0, 0}));
  std::vector<int> parents;
  for (int row = 0; row < tree.size(); ++row) parents.push_back(tree.parent(row));
  EXPECT_THAT(parents, ElementsAre(0, 0, 0, 1, 1, 3));
}

TEST(ChoiceTree, KnowsTheChildrenOfEachRowAndTheHighestRank) {
  const ChoiceTree tree = from(kExample);
  std::vector<int> first, count;
  for (int row = 0; row < tree.size(); ++row) {
    first.push_back(tree.first_child(row));
    count.push_back(tree.children(row));
  }
  EXPECT_THAT(count, ElementsAre(2, 2, 0, 1, 0, 0));
  EXPECT_THAT(first, ElementsAre(1, 3, 0, 5, 0, 0));
  EXPECT_EQ(tree.ranks(), 2);
  EXPECT_EQ(tree.best(3).ranks(), 1);
  EXPECT_EQ(from("[[7]]").ranks(), 8);
  EXPECT_EQ(from("[]").ranks(), 0);
}

TEST(ChoiceTree, AnEmptyListIsTheRootAlone) {
  EXPECT_EQ(from("[]").size(), 1);
  EXPECT_EQ(from("[]").depth(), 0);
}

TEST(ChoiceTree, RefusesBadListsInOneLine) {
  EXPECT_EQ(refusal("[[0], [1, 0]]"), "tree.json: choice [1, 0] without its parent [1]");
  EXPECT_EQ(refusal("[[0], [10]]", {.ranks = 10}), "tree.json: choice [10]: rank 10, expected 0 to 9");
  EXPECT_EQ(refusal("[[0], [3]]", {.ranks = 3}), "tree.json: choice [3]: rank 3, expected 0 to 2");
  EXPECT_EQ(refusal("[[0], [0, 0]]", {.depth = 1}), "tree.json: a choice of length 2, expected at most 1");
  EXPECT_EQ(refusal("[[0], [1], [0]]"), "tree.json: choice [0] stands there twice");
  EXPECT_EQ(refusal("[[0], []]"), "tree.json: an empty choice, expected at least one rank: the root is not listed");
}

TEST(ChoiceTree, RefusesWhatIsNoListOfPathsInOneLine) {
  EXPECT_EQ(refusal("{\"a\": 1}"), "tree.json: expected an array of choices, got object");
  EXPECT_EQ(refusal("[[0], 1]"), "tree.json: choice number 1: expected an array of ranks, got number");
  EXPECT_EQ(refusal("[[0], [\"1\"]]"), "tree.json: choice number 1: expected whole numbers, got string");
  EXPECT_EQ(refusal("[[0.0]]"), "tree.json: choice number 0: expected whole numbers, got number");
  EXPECT_EQ(refusal("[[-1]]"), "tree.json: choice number 0: rank -1, expected a small whole number");
  EXPECT_EQ(refusal("[[18446744073709551615]]"),
            "tree.json: choice number 0: rank 18446744073709551615, expected a small whole number");
  EXPECT_EQ(refusal("[[0], [0"), "tree.json: not JSON, at byte 9");
  EXPECT_EQ(refusal(""), "tree.json: not JSON, at byte 1");
  EXPECT_EQ(refusal("[[0]] x"), "tree.json: not JSON, at byte 7");
  EXPECT_EQ(refusal("[\"\xff\"]"), "tree.json: not JSON, at byte 3");
  EXPECT_NE(refusal(std::string(500'000, '[')), "accepted");
}

TEST(ChoiceTree, RefusesMoreChoicesThanATreeMayHave) {
  std::string many = "[[0]";
  for (int i = 1; i < kMaxTreeRows; ++i) many += ", [" + std::to_string(i) + "]";
  EXPECT_EQ(refusal(many + "]", {.ranks = 5000}), "tree.json: 4096 choices, expected at most 4095");
}

TEST(ChoiceTree, AListGrownBestFirstIsCutInItsOwnOrder) {
  const ChoiceTree tree = from(kExample);
  EXPECT_THAT(paths_of(tree.best(3)), ElementsAre(Path{0}, Path{0, 0}));
  EXPECT_THAT(paths_of(tree.best(5)), ElementsAre(Path{0}, Path{1}, Path{0, 0}, Path{0, 1}));
  EXPECT_EQ(tree.best(1).size(), 1);
  EXPECT_EQ(tree.best(1000).size(), 6);
  EXPECT_EQ(paths_of(tree.best(4).best(3)), paths_of(tree.best(3))) << "a cut tree keeps its order";
}

TEST(ChoiceTree, ASortedListIsCutByTheRuleForRanksAndLevels) {
  // Costs 2(r+1) multiplied along the path: [0] 2, [1] 4, [2] 6, [0,0] 4, [0,1] 8, [1,0] 8, [0,0,0] 8.
  const ChoiceTree tree = from("[[0], [1], [2], [0,0], [0,1], [1,0], [0,0,0]]");
  EXPECT_THAT(paths_of(tree.best(4)), ElementsAre(Path{0}, Path{1}, Path{0, 0}));
  EXPECT_THAT(paths_of(tree.best(6)), ElementsAre(Path{0}, Path{1}, Path{2}, Path{0, 0}, Path{0, 1}));
}

TEST(ChoiceTree, AListWithAChildBeforeItsParentIsCutByTheRuleToo) {
  const ChoiceTree tree = from("[[1, 0], [1], [0, 0], [0]]");
  EXPECT_THAT(paths_of(tree.best(3)), ElementsAre(Path{0}, Path{1}));
}

TEST(ChoiceTree, EveryCutIsAValidTree) {
  std::vector<Path> all;
  for (int a = 0; a < 5; ++a) {
    all.push_back({a});
    for (int b = 0; b < 5; ++b) {
      all.push_back({a, b});
      for (int c = 0; c < 5; ++c) all.push_back({a, b, c});
    }
  }
  std::reverse(all.begin(), all.end());
  const ChoiceTree tree(all, {}, "all");
  for (int rows = 1; rows <= tree.size(); ++rows) {
    const ChoiceTree cut = tree.best(rows);
    ASSERT_EQ(cut.size(), rows);
    ASSERT_NO_THROW(ChoiceTree(paths_of(cut), {}, "cut"));
  }
}

TEST(ChoiceTree, IsCutToTheNumberOfHeads) {
  const ChoiceTree tree = from(kExample).cut(2);
  EXPECT_EQ(tree.depth(), 2);
  EXPECT_EQ(tree.size(), 5);
  EXPECT_THAT(paths_of(tree.best(3)), ElementsAre(Path{0}, Path{0, 0}));
  EXPECT_EQ(from(kExample).cut(0).size(), 1);
}

TEST(ChoiceTree, IsNarrowedToTheGuessesOfAHead) {
  const ChoiceTree tree = from("[[0], [2], [0, 0], [2, 0], [1], [0, 3], [1, 2], [1, 0], [1, 0, 0], [1, 2, 0]]");
  EXPECT_THAT(paths_of(tree.narrow(2)), ElementsAre(Path{0}, Path{1}, Path{0, 0}, Path{1, 0}, Path{1, 0, 0}))
      << "nothing stays below a guess that is gone";
  EXPECT_THAT(paths_of(tree.narrow(2).best(3)), ElementsAre(Path{0}, Path{0, 0})) << "a narrow tree keeps its order";
  EXPECT_EQ(tree.narrow(4).size(), tree.size());
  EXPECT_THAT(paths_of(tree.narrow(1)), ElementsAre(Path{0}, Path{0, 0}));
  EXPECT_EQ(from("[[1]]").narrow(1).size(), 1) << "a list may lack its best guess";
}

TEST(ChoiceTree, CountsTheRowsOfItsLevelsAndItsLeaves) {
  EXPECT_THAT(from(kExample).level_sizes(), ElementsAre(2, 2, 1));
  EXPECT_EQ(from(kExample).leaves(), 3);
  EXPECT_TRUE(from("[]").level_sizes().empty());
  EXPECT_EQ(from("[]").leaves(), 0) << "the root is no guess";
}

// Rows, leaves and nodes per depth of the trees that papers name (medusa.md, section 3.5).
struct NamedTree {
  int rows, leaves;
  std::vector<int> per_depth;
  int largest_rank;
};
const std::map<std::string, NamedTree> kNamedTrees = {
    {"mc_sim_7b_63", {64, 42, {10, 28, 23, 2}, 9}},      {"vicuna_7b_stage2", {64, 42, {10, 23, 23, 7}, 9}},
    {"vicuna_7b_stage1", {64, 44, {10, 32, 20, 1}, 9}},  {"vicuna_7b_stage1_ablation", {64, 42, {10, 21, 25, 7}, 9}},
    {"vicuna_13b_stage1", {64, 44, {10, 29, 23, 1}, 9}}, {"vicuna_13b_stage2", {64, 42, {10, 19, 25, 9}, 9}},
    {"vicuna_33b_stage2", {64, 43, {10, 24, 24, 5}, 9}}, {"vicuna_33b_stage1", {64, 46, {10, 34, 19}, 9}},
    {"zephyr_stage2", {64, 44, {10, 27, 23, 3}, 9}},     {"pangu_stage2", {57, 39, {10, 23, 23}, 9}},
    {"pangu_32", {33, 21, {5, 13, 13, 1}, 4}},           {"pangu_64", {65, 42, {6, 20, 28, 10}, 6}},
    {"eagle1_25", {26, 15, {4, 8, 8, 3, 2}, 3}},
};

TEST(ChoiceTree, TheNamedTreesHaveTheirPublishedCounts) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ESPALIER_TREES)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().filename());
    const auto expected = kNamedTrees.find(entry.path().stem());
    ASSERT_NE(expected, kNamedTrees.end());
    const ChoiceTree tree = ChoiceTree::read(entry.path(), {});
    EXPECT_EQ(tree.size(), expected->second.rows);
    EXPECT_EQ(tree.leaves(), expected->second.leaves);
    EXPECT_EQ(tree.level_sizes(), expected->second.per_depth);
    EXPECT_EQ(tree.ranks() - 1, expected->second.largest_rank);
    ++files;
  }
  EXPECT_EQ(files, std::ssize(kNamedTrees)) << "every one of them is there";
}

TEST(ChoiceTree, TheWidestLevelIsTheMostRowsThatAreExpandedAtOnce) {
  EXPECT_EQ(ChoiceTree({{0}, {1}, {2}}, {}, "here").widest_level(), 1) << "only the root has children";
  EXPECT_EQ(ChoiceTree({{0}, {1}, {2}, {0, 0}, {1, 0}, {0, 0, 0}}, {}, "here").widest_level(), 2);
  EXPECT_EQ(ChoiceTree({{0}, {1}}, {}, "here").best(1).widest_level(), 1) << "the root alone";
}

}  // namespace
}  // namespace espalier
