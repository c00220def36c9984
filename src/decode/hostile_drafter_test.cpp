#include "decode/hostile_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "base/random.h"
#include "decode/draft_tree.h"

namespace espalier {
namespace {

using Tokens = std::vector<std::int32_t>;
using Guesses = std::vector<DraftToken>;

constexpr std::int32_t kHostileVocabulary = 30;
constexpr int kBranch = 4;

// The guesses for the root and for two nodes below it, of a round over `size` tokens. Token i is 7 + i % 5.
std::vector<Guesses> round_of(HostileDrafter& drafter, std::size_t size) {
  Tokens tokens(size);
  for (std::size_t i = 0; i < size; ++i) tokens[i] = 7 + static_cast<std::int32_t>(i % 5);
  drafter.begin_round(tokens);
  Candidates candidates(tokens.back());
  std::vector<Guesses> lists = drafter.expand(candidates, Tokens{0}, kBranch);
  const Tokens level = {candidates.add(0, {.token = 1}), candidates.add(0, {.token = 2})};
  for (Guesses& guesses : drafter.expand(candidates, level, kBranch)) lists.push_back(std::move(guesses));
  return lists;
}

// What was seen in many rounds.
struct Sightings {
  std::set<std::int32_t> tokens;
  std::set<std::size_t> counts;
  bool twins = false, nan = false, plus_infinity = false, minus_infinity = false, zero = false, positive = false;
  bool all_equal = false, only_the_root = false;

  void add(const Guesses& guesses, std::int32_t root) {
    counts.insert(guesses.size());
    std::set<std::int32_t> distinct;
    for (const DraftToken& guess : guesses) {
      tokens.insert(guess.token);
      distinct.insert(guess.token);
      const double value = guess.log_probability;
      nan |= std::isnan(value);
      plus_infinity |= value > 0 && std::isinf(value);
      minus_infinity |= value < 0 && std::isinf(value);
      zero |= value == 0;
      positive |= value > 0 && std::isfinite(value);
    }
    twins |= distinct.size() < guesses.size();
    only_the_root |= guesses.size() > 1 && distinct == std::set<std::int32_t>{root};
    all_equal |= guesses.size() > 1 && std::all_of(guesses.begin(), guesses.end(), [&](const DraftToken& guess) {
                   return guess.log_probability == guesses[0].log_probability;
                 });
  }
};

TEST(HostileDrafter, TriesEverythingThatCouldGoWrong) {
  HostileDrafter drafter(1, kHostileVocabulary);
  Sightings seen;
  for (std::size_t size = 1; size < 2000; ++size)
    for (const Guesses& guesses : round_of(drafter, size))
      seen.add(guesses, 7 + static_cast<std::int32_t>((size - 1) % 5));
  for (std::int32_t token : {0, kHostileVocabulary - 1, -1, kHostileVocabulary,
                             std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(), 15})
    EXPECT_TRUE(seen.tokens.contains(token)) << token;
  EXPECT_TRUE(seen.counts.contains(0));
  EXPECT_TRUE(seen.counts.contains(1));
  EXPECT_TRUE(seen.counts.contains(kBranch));
  EXPECT_GT(*seen.counts.rbegin(), std::size_t{kBranch});
  EXPECT_TRUE(seen.twins);
  EXPECT_TRUE(seen.nan);
  EXPECT_TRUE(seen.plus_infinity);
  EXPECT_TRUE(seen.minus_infinity);
  EXPECT_TRUE(seen.zero);
  EXPECT_TRUE(seen.positive);
  EXPECT_TRUE(seen.all_equal);
  EXPECT_TRUE(seen.only_the_root);
}

TEST(HostileDrafter, ARoundKeepsItsTemper) {
  HostileDrafter drafter(2, kHostileVocabulary);
  int silent = 0, rooted = 0;
  for (std::size_t size = 1; size < 1000; ++size) {
    const auto temper = drafter.temper(static_cast<std::int64_t>(size) - 1);
    for (const Guesses& guesses : round_of(drafter, size)) {
      if (temper.counts == HostileDrafter::Counts::none) {
        ASSERT_TRUE(guesses.empty());
        ++silent;
      }
      if (temper.tokens != HostileDrafter::Tokens::root) continue;
      for (const DraftToken& guess : guesses) {
        ASSERT_EQ(guess.token, 7 + static_cast<std::int32_t>((size - 1) % 5));
        ++rooted;
      }
    }
  }
  EXPECT_GT(silent, 100);
  EXPECT_GT(rooted, 100);
}

TEST(HostileDrafter, TheSameSeedSaysTheSameAtTheSamePlace) {
  HostileDrafter one(3, kHostileVocabulary), same(3, kHostileVocabulary), other(4, kHostileVocabulary);
  const auto bits_of = [](const std::vector<Guesses>& lists) {
    std::vector<std::vector<std::pair<std::int32_t, std::uint64_t>>> bits;
    for (const Guesses& guesses : lists) {
      bits.emplace_back();
      for (const DraftToken& guess : guesses)
        bits.back().emplace_back(guess.token, std::bit_cast<std::uint64_t>(guess.log_probability));
    }
    return bits;
  };
  int different = 0;
  for (std::size_t size = 200; size > 0; --size) round_of(same, size);
  for (std::size_t size = 1; size < 200; ++size) {
    const auto bits = bits_of(round_of(one, size));
    ASSERT_EQ(bits, bits_of(round_of(same, size)));
    different += bits != bits_of(round_of(other, size));
  }
  EXPECT_GT(different, 150);
}

TEST(HostileDrafter, NeverClaimsToKnowMoreThanThereIs) {
  const HostileDrafter drafter(5, kHostileVocabulary);
  int fewer = 0;
  for (std::int64_t length = 0; length < 1000; ++length) {
    const std::int64_t resumable = drafter.resumable(length);
    ASSERT_GE(resumable, 0);
    ASSERT_LE(resumable, length);
    fewer += resumable < length;
  }
  EXPECT_GT(fewer, 100);
  EXPECT_LT(fewer, 500);
}

TEST(HostileDrafter, AnyTreeGrownFromItIsSound) {
  int nodes = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    DrafterSet drafters;
    drafters.push_back(std::make_unique<HostileDrafter>(seed, kHostileVocabulary));
    if (seed % 3 == 0) drafters.push_back(std::make_unique<HostileDrafter>(seed + 1, kHostileVocabulary));
    const Tokens tokens(1 + mix64(seed) % 50, static_cast<std::int32_t>(seed % kHostileVocabulary));
    for (const auto& drafter : drafters) drafter->begin_round(tokens);
    const TreeOptions options = {.shape = seed % 2 == 0 ? TreeShape::dynamic : TreeShape::chain,
                                 .nodes = 1 + static_cast<int>(seed % 20)};
    const TokenTree tree =
        grow_tree(tokens.back(), options, {.rows = 16, .depth = 5, .vocabulary = kHostileVocabulary}, drafters);
    ASSERT_LE(tree.size(), std::min(options.nodes, 16));
    ASSERT_LE(tree.depth(), 5);
    for (int node = 1; node < tree.size(); ++node) {
      ASSERT_TRUE(tree[node].token >= 0 && tree[node].token < kHostileVocabulary);
      ASSERT_LE(tree[node].score, tree[tree[node].parent].score);
      ASSERT_EQ(tree.child(tree[node].parent, tree[node].token), node) << "siblings differ";
    }
    nodes += tree.size() - 1;
  }
  EXPECT_GT(nodes, 2000);
}

TEST(HostileDrafter, AVocabularyOfOneIsEnough) {
  HostileDrafter drafter(6, 1);
  for (std::size_t size = 1; size < 100; ++size) EXPECT_EQ(round_of(drafter, size).size(), 3u);
  EXPECT_THROW(HostileDrafter(6, 0), std::logic_error);
}

}  // namespace
}  // namespace espalier
