#include "tree/tree_invariants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tree/testing/random_tree.h"

namespace espalier {
namespace {

using testing::HasSubstr;

constexpr TreeLimits kLimits = {.vocabulary = 5000, .positions = 1000};

// What a launch would carry, and the tree it came from.
struct Launch {
  TokenTree tree;
  TreeTensors tensors;
  MaskOptions mask;
  std::vector<std::uint8_t> hidden;
};

// From the paths, where the checks go by the parents.
std::vector<std::uint8_t> mask_of(const TreeTensors& t, const MaskOptions& options) {
  const auto columns = static_cast<std::size_t>(options.columns);
  std::vector<std::uint8_t> hidden(static_cast<std::size_t>(t.nodes) * columns, 1);
  for (int row = 0; row < t.nodes; ++row) {
    const auto position = [&](int node) { return t.position[static_cast<std::size_t>(node)]; };
    const auto show = [&](int column, std::int32_t at) {
      if (options.window == 0 || at > position(row) - options.window)
        hidden[static_cast<std::size_t>(row) * columns + static_cast<std::size_t>(column)] = 0;
    };
    for (int column = 0; column < t.prefix; ++column) show(column, column);
    for (int above : t.ancestors(row)) show(t.prefix + above, position(above));
    show(t.prefix + row, position(row));
  }
  return hidden;
}

Launch launch(std::uint64_t seed) {
  const TokenTree tree = random_tree(seed, 1 + static_cast<int>(seed * 101 % 256));
  const TreeTensors tensors = tensorize(tree, 5 + static_cast<std::int32_t>(seed % 200));
  const MaskOptions mask = {.window = seed % 3 == 0 ? 1 + static_cast<std::int32_t>(seed % 50) : 0,
                            .columns = (tensors.prefix + tensors.nodes + 127) / 128 * 128 + (seed % 4 == 0 ? 128 : 0)};
  return {tree, tensors, mask, mask_of(tensors, mask)};
}

void check_launch(const Launch& launch) {
  check_tensors(launch.tensors, kLimits);
  check_tensors_match(launch.tensors, launch.tree);
  check_mask(launch.tensors, launch.mask, launch.hidden);
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

bool flip(std::vector<std::uint8_t>& bits, std::size_t at) {
  bits[at] ^= 1;
  return true;
}

// One bit of the mask in a column from `begin` to before `end`.
bool flip_mask(Launch& launch, Injector& injector, std::int32_t begin, std::int32_t end) {
  if (begin >= end) return false;
  const auto columns = launch.hidden.size() / static_cast<std::size_t>(launch.tensors.nodes);
  const auto row = static_cast<std::size_t>(injector.below(static_cast<std::size_t>(launch.tensors.nodes)));
  const auto column = static_cast<std::size_t>(begin + injector.below(static_cast<std::size_t>(end - begin)));
  return flip(launch.hidden, row * columns + column);
}

// A mask written for another window, where that makes a difference.
bool write_another_window(Launch& launch, Injector& injector) {
  MaskOptions other = launch.mask;
  const auto limit = static_cast<std::size_t>(launch.tensors.prefix + launch.tensors.levels);
  other.window = other.window == 0 ? 1 + injector.below(limit) : other.window + 1 - 2 * injector.below(2);
  std::vector<std::uint8_t> hidden = mask_of(launch.tensors, other);
  launch.hidden.swap(hidden);
  return launch.hidden != hidden;
}

// The window one step off at a single row: the bit at its edge.
bool move_the_edge_of_a_window(Launch& launch, Injector& injector) {
  const TreeTensors& t = launch.tensors;
  const auto columns = launch.hidden.size() / static_cast<std::size_t>(t.nodes);
  const auto row = static_cast<std::size_t>(injector.below(static_cast<std::size_t>(t.nodes)));
  const auto bits = std::span(launch.hidden).subspan(row * columns, columns);
  const auto first = std::find(bits.begin(), bits.end(), 0);
  *first = 1;  // the oldest key it sees, which is itself in a window of one
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
    {"mask bit, prefix", [](Launch& l, Injector& i) { return flip_mask(l, i, 0, l.tensors.prefix); }},
    {"mask bit, tree",
     [](Launch& l, Injector& i) { return flip_mask(l, i, l.tensors.prefix, l.tensors.prefix + l.tensors.nodes); }},
    {"mask bit, behind the tree",
     [](Launch& l, Injector& i) {
       const auto columns = l.hidden.size() / static_cast<std::size_t>(l.tensors.nodes);
       return flip_mask(l, i, l.tensors.prefix + l.tensors.nodes, static_cast<std::int32_t>(columns));
     }},
    {"mask byte, not 0 or 1",
     [](Launch& l, Injector& i) {
       l.hidden[static_cast<std::size_t>(i.below(l.hidden.size()))] = 255;
       return true;
     }},
    {"mask of another window", write_another_window},
    {"mask bit, edge of a window", move_the_edge_of_a_window},
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
  fmt::print("{:<26} {:>8} {:>6}  by rule\n", "fault", "injected", "caught");
  for (const auto& [fault, inject] : kFaults) {
    int injected = 0, caught = 0;
    std::map<std::string_view, int> by_rule;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
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
    EXPECT_GE(injected, 300) << fault;
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

TEST(TreeInvariants, AMaskOfTheWrongSizeIsCaught) {
  const TreeTensors tensors = tensorize(TokenTree(7), 3);
  const std::vector<std::uint8_t> hidden = mask_of(tensors, {.columns = 128});
  EXPECT_NO_THROW(check_mask(tensors, {.columns = 128}, hidden));
  EXPECT_THROW(check_mask(tensors, {.columns = 128}, std::span(hidden).first(127)), TreeViolation);
  EXPECT_THROW(check_mask(tensors, {.columns = 127}, std::span(hidden).first(127)), TreeViolation);
  EXPECT_THROW(check_mask(tensors, {.columns = 0}, {}), TreeViolation);
  EXPECT_THROW(check_mask(tensors, {.window = -1, .columns = 128}, hidden), TreeViolation);
}

TEST(TreeInvariants, AnyContentCanBeShown) {
  TreeTensors tensors;
  tensors.nodes = 2'000'000'000;
  tensors.token = {5};
  EXPECT_THAT(render(tensors), HasSubstr("    0      ?     ?        5        ?\n"));
}

}  // namespace
}  // namespace espalier
