#include "tree/tree_invariants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/sanitized.h"
#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

using testing::HasSubstr;

constexpr TreeLimits kLimits = {.vocabulary = 5000, .positions = 1000};

// What a launch would carry, and the tree it came from.
struct Launch {
  TokenTree tree;
  TreeTensors tensors;
};

Launch launch(std::uint64_t seed) {
  const TokenTree tree = random_tree(seed, 1 + static_cast<int>(seed * 101 % 256));
  return {tree, tensorize(tree, 5 + static_cast<std::int32_t>(seed % 200))};
}

void check_launch(const Launch& launch) {
  check_tensors(launch.tensors, kLimits);
  check_tensors_match(launch.tensors, launch.tree);
}

class Injector {
 public:
  explicit Injector(std::uint64_t seed) : random_(seed) {}

  int below(std::size_t count) { return static_cast<int>(random_() % count); }

  // Another value for one entry of a table: any in-range one, or one just outside.
  template <typename Value>
  bool change(std::vector<Value>& table, int end) {
    Value& entry = table[static_cast<std::size_t>(below(table.size()))];
    const int before = entry;
    while (entry == before) entry = static_cast<Value>(below(static_cast<std::size_t>(end) + 2) - 1);
    return true;
  }

 private:
  std::mt19937_64 random_;
};

// A fault changes one value; false where this tree has no place for it.
using Fault = std::function<bool(Launch&, Injector&)>;

bool duplicate_a_sibling(Launch& launch, Injector& injector) {
  std::vector<int> second_children;
  for (int node = 2; node < launch.tree.size(); ++node)
    if (launch.tree[node].parent == launch.tree[node - 1].parent) second_children.push_back(node);
  if (second_children.empty()) return false;
  const auto node = static_cast<std::size_t>(second_children[injector.below(second_children.size())]);
  launch.tensors.token[node] = launch.tensors.token[node - 1];
  return true;
}

// The hardest wrong parent to see: the rows would still be in breadth-first order.
bool move_to_a_neighbouring_parent(Launch& launch, Injector& injector) {
  std::vector<std::pair<std::size_t, std::int32_t>> places;
  auto& parent = launch.tensors.parent;
  for (std::size_t row = 2; row + 1 < static_cast<std::size_t>(launch.tensors.nodes); ++row)
    for (const std::int32_t other : {parent[row - 1], parent[row + 1]})
      if (other != parent[row] && other < static_cast<std::int32_t>(row)) places.emplace_back(row, other);
  if (places.empty()) return false;
  const auto& [row, other] = places[static_cast<std::size_t>(injector.below(places.size()))];
  parent[row] = other;
  return true;
}

const std::vector<std::pair<std::string, Fault>> kFaults = {
    {"parent", [](Launch& l, Injector& i) { return i.change(l.tensors.parent, l.tensors.nodes); }},
    {"parent, still in order", move_to_a_neighbouring_parent},
    {"depth", [](Launch& l, Injector& i) { return i.change(l.tensors.depth, l.tensors.levels); }},
    {"token as a sibling's", duplicate_a_sibling},
    {"token, any other",
     [](Launch& l, Injector& i) {
       std::int32_t& token = l.tensors.token[static_cast<std::size_t>(i.below(l.tree.nodes().size()))];
       token += 1 + i.below(5000);
       return true;
     }},
    {"token, negative",
     [](Launch& l, Injector& i) {
       l.tensors.token[static_cast<std::size_t>(i.below(l.tensors.token.size()))] = -1;
       return true;
     }},
    {"position", [](Launch& l, Injector& i) { return i.change(l.tensors.position, 1000); }},
    {"path entry", [](Launch& l, Injector& i) { return i.change(l.tensors.path, l.tensors.nodes); }},
    {"node count",
     [](Launch& l, Injector& i) {
       l.tensors.nodes += i.below(2) ? 1 : -1;
       return true;
     }},
    {"prefix",
     [](Launch& l, Injector& i) {
       l.tensors.prefix += i.below(2) ? 1 : -1;
       return true;
     }},
    {"table too short",
     [](Launch& l, Injector& i) {
       TreeTensors& t = l.tensors;
       std::vector<std::int32_t>* const tables[] = {&t.token, &t.parent, &t.depth, &t.position, &t.path};
       tables[i.below(5)]->pop_back();
       return true;
     }},
};

TEST(TreeInvariants, HoldForWhateverTheTreeIs) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_THROW(check_launch(launch(seed)));
  }
}

TEST(TreeInvariants, CatchEverySingleFault) {
  constexpr std::uint64_t kSeeds = kSanitized ? 100 : 400;
  fmt::print("{:<26} {:>8} {:>6}  by rule\n", "fault", "injected", "caught");
  for (const auto& [fault, inject] : kFaults) {
    int injected = 0, caught = 0;
    std::map<std::string_view, int> by_rule;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Launch broken = launch(seed);
      Injector injector(seed);
      if (!inject(broken, injector)) continue;
      ++injected;
      try {
        check_launch(broken);
        ADD_FAILURE() << fault << " passed with seed " << seed;
      } catch (const TreeViolation& violation) {
        ++caught;
        ++by_rule[name(violation.rule())];
      }
    }
    std::string rules;
    for (const auto& [rule, count] : by_rule) rules += fmt::format(" {} {}", rule, count);
    fmt::print("{:<26} {:>8} {:>6} {}\n", fault, injected, caught, rules);
    EXPECT_EQ(injected, caught);
    EXPECT_GE(injected, static_cast<int>(kSeeds) * 3 / 4) << fault;
  }
}

// Exhaustive where it can be: every entry of every table of small trees, every other value.
TEST(TreeInvariants, CatchEveryOtherValueOfEveryEntryOfSmallTrees) {
  int injected = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const TokenTree tree = random_tree(seed, 1 + static_cast<int>(seed));
    const TreeTensors good = tensorize(tree, 3);
    TreeTensors broken = good;
    for (auto* table : {&broken.parent, &broken.depth, &broken.position, &broken.path})
      for (std::int32_t& entry : *table) {
        const std::int32_t before = entry;
        for (entry = -1; entry <= 12; ++entry)
          if (entry != before) {
            ++injected;
            ASSERT_THROW(check_tensors(broken), TreeViolation) << "seed " << seed;
          }
        entry = before;
      }
    ASSERT_EQ(broken, good);
  }
  EXPECT_GT(injected, 5000);
}

TEST(TreeInvariants, AViolationNamesRuleAndRowAndShowsTheTree) {
  TokenTree tree(7);
  tree.append(0, {.token = 11});
  tree.append(1, {.token = 12});
  TreeTensors tensors = tensorize(tree, 40);
  tensors.depth[2] = 1;
  try {
    check_tensors(tensors);
    FAIL() << "expected a violation";
  } catch (const TreeViolation& violation) {
    EXPECT_EQ(violation.rule(), TreeRule::depth);
    EXPECT_EQ(violation.row(), 2);
    EXPECT_STREQ(violation.what(),
                 "tree rule \"depth\" broken in row 2: depth 1 below row 1 of depth 1\n"
                 "3 nodes, 3 levels, prefix 40\n"
                 "  row parent depth    token position\n"
                 "    0      0     0        7       40\n"
                 "    1      0     1       11       41\n"
                 "    2      1     1       12       42\n");
  }
}

TEST(TreeInvariants, ACycleIsFoundAndDoesNotHang) {
  TreeTensors tensors = tensorize(random_tree(3, 20), 0);
  tensors.parent[5] = 6;
  tensors.parent[6] = 5;
  EXPECT_THROW(check_tensors(tensors), TreeViolation);
}

TEST(TreeInvariants, LimitsOfVocabularyAndRopeTableHold) {
  const TreeTensors tensors = tensorize(TokenTree(7), 40);
  EXPECT_NO_THROW(check_tensors(tensors, {.vocabulary = 8, .positions = 41}));
  EXPECT_THROW(check_tensors(tensors, {.vocabulary = 7}), TreeViolation);
  EXPECT_THROW(check_tensors(tensors, {.positions = 40}), TreeViolation);
}

TEST(TreeInvariants, AnyContentCanBeShown) {
  TreeTensors tensors;
  tensors.nodes = 2'000'000'000;
  tensors.token = {5};
  EXPECT_THAT(render(tensors), HasSubstr("    0      ?     ?        5        ?\n"));
}

}  // namespace
}  // namespace espalier
