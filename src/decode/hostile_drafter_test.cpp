#include "decode/hostile_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/random.h"
#include "decode/draft_tree.h"

namespace espalier {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int32_t kHostileVocabulary = 30;
constexpr int kBranch = 4;

// The guesses for the root and for two nodes below it, of a round over `size` tokens. Token i is 7 + i % 5.
Guesses round_of(HostileSequence& sequence, std::size_t size) {
  Tokens tokens(size);
  for (std::size_t i = 0; i < size; ++i) tokens[i] = 7 + static_cast<std::int32_t>(i % 5);
  sequence.begin_round({.tokens = tokens});
  Candidates candidates(tokens.back());
  Guesses lists = sequence.expand(candidates, Tokens{0}, kBranch);
  const Tokens level = {candidates.add(0, {.token = 1}), candidates.add(0, {.token = 2})};
  for (auto& guesses : sequence.expand(candidates, level, kBranch)) lists.push_back(std::move(guesses));
  return lists;
}

using GuessBits = std::vector<std::vector<std::pair<std::int32_t, std::uint64_t>>>;
GuessBits bits_of(const Guesses& lists) {
  GuessBits bits;
  for (const auto& guesses : lists) {
    bits.emplace_back();
    for (const DraftToken& guess : guesses)
      bits.back().emplace_back(guess.token, std::bit_cast<std::uint64_t>(guess.log_probability));
  }
  return bits;
}

// What was seen in many rounds.
struct Sightings {
  std::set<std::int32_t> tokens;
  std::set<std::size_t> counts;
  bool twins = false, nan = false, plus_infinity = false, minus_infinity = false, zero = false, positive = false;
  bool all_equal = false, only_the_root = false;

  void add(const std::vector<DraftToken>& guesses, std::int32_t root) {
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
  HostileSequence sequence(1, kHostileVocabulary);
  Sightings seen;
  for (std::size_t size = 1; size < 2000; ++size)
    for (const auto& guesses : round_of(sequence, size))
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
  HostileSequence sequence(2, kHostileVocabulary);
  int silent = 0, rooted = 0;
  for (std::size_t size = 1; size < 1000; ++size) {
    const auto temper = sequence.temper(static_cast<std::int64_t>(size) - 1);
    for (const auto& guesses : round_of(sequence, size)) {
      if (temper.counts == HostileSequence::Counts::none) {
        ASSERT_TRUE(guesses.empty());
        ++silent;
      }
      if (temper.tokens != HostileSequence::Tokens::root) continue;
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
  HostileSequence one(3, kHostileVocabulary), same(3, kHostileVocabulary), other(4, kHostileVocabulary);
  int different = 0;
  for (std::size_t size = 200; size > 0; --size) round_of(same, size);
  for (std::size_t size = 1; size < 200; ++size) {
    const auto bits = bits_of(round_of(one, size));
    ASSERT_EQ(bits, bits_of(round_of(same, size)));
    different += bits != bits_of(round_of(other, size));
  }
  EXPECT_GT(different, 150);
}

TEST(HostileDrafter, ItsSequencesSayTheSameInOnePassAsAlone) {
  HostileDrafter drafter(3, kHostileVocabulary);
  const auto one = drafter.open(0, {}), other = drafter.open(1, {});
  const Tokens shorter(20, 7), longer(31, 7);
  one->begin_round({.tokens = shorter});
  other->begin_round({.tokens = longer});
  const Candidates candidates(7);
  const std::vector<int> root = {0};
  const std::vector<DraftJob> jobs = {{other.get(), &candidates, root, kBranch}, {one.get(), &candidates, root, 2}};
  const std::vector<Guesses> all = drafter.expand(jobs);
  ASSERT_EQ(all.size(), 2u);
  HostileSequence alone(3, kHostileVocabulary);
  alone.begin_round({.tokens = longer});
  EXPECT_EQ(bits_of(all[0]), bits_of(alone.expand(candidates, root, kBranch)));
  alone.begin_round({.tokens = shorter});
  EXPECT_EQ(bits_of(all[1]), bits_of(alone.expand(candidates, root, 2)));
}

TEST(HostileDrafter, NowAndThenItWantsTheLastReusedPositionOnceMore) {
  HostileSequence sequence(5, kHostileVocabulary), same(5, kHostileVocabulary), other(6, kHostileVocabulary);
  int wanted = 0, different = 0;
  for (std::size_t length = 1; length <= 1000; ++length) {
    const Tokens tokens(length, 7);
    const bool again = sequence.reused(tokens);
    ASSERT_EQ(again, same.reused(tokens)) << "from the seed and the length alone";
    wanted += again;
    different += again != other.reused(tokens);
  }
  EXPECT_GT(wanted, 100);
  EXPECT_LT(wanted, 500);
  EXPECT_GT(different, 100);
}

// What drafters know of one text, with a round begun over it.
std::vector<std::unique_ptr<DraftSequence>> opened(const DrafterSet& drafters, const Tokens& tokens) {
  std::vector<std::unique_ptr<DraftSequence>> sequences;
  for (const auto& drafter : drafters) {
    sequences.push_back(drafter->open(0, {}));
    sequences.back()->begin_round({.tokens = tokens});
  }
  return sequences;
}

TEST(HostileDrafter, AnyTreeGrownFromItIsSound) {
  int nodes = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    DrafterSet drafters;
    drafters.push_back(std::make_unique<HostileDrafter>(seed, kHostileVocabulary));
    if (seed % 3 == 0) drafters.push_back(std::make_unique<HostileDrafter>(seed + 1, kHostileVocabulary));
    const TreeOptions options = {.shape = seed % 2 == 0 ? TreeShape::dynamic : TreeShape::chain,
                                 .nodes = 1 + static_cast<int>(seed % 20)};
    // One sequence, or several that grow together under limits of their own.
    std::vector<Tokens> texts(1 + seed % 3);
    std::vector<std::vector<std::unique_ptr<DraftSequence>>> sequences;
    std::vector<GrowthJob> jobs;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      texts[i].assign(1 + mix64(seed + i) % 50, static_cast<std::int32_t>((seed + i) % kHostileVocabulary));
      sequences.push_back(opened(drafters, texts[i]));
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const int less = 2 * static_cast<int>(i);
      const RoundLimits limits = {.rows = 16 - less, .depth = 5 - less, .vocabulary = kHostileVocabulary};
      jobs.push_back({texts[i].back(), limits, sequences[i]});
    }
    const std::vector<Candidates> candidates = grow_candidates(jobs, options, drafters);
    ASSERT_EQ(candidates.size(), jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const TokenTree tree = candidates[i].best(std::min(max_rows(options), jobs[i].limits.rows));
      ASSERT_EQ(tree[0].token, texts[i].back());
      ASSERT_LE(tree.size(), std::min(options.nodes, jobs[i].limits.rows));
      ASSERT_LE(tree.depth(), jobs[i].limits.depth);
      for (int node = 1; node < tree.size(); ++node) {
        ASSERT_TRUE(tree[node].token >= 0 && tree[node].token < kHostileVocabulary);
        ASSERT_LE(tree[node].score, tree[tree[node].parent].score);
        ASSERT_EQ(tree.child(tree[node].parent, tree[node].token), node) << "siblings differ";
      }
      nodes += tree.size() - 1;
      const std::vector<Candidates> alone = grow_candidates(std::span(&jobs[i], 1), options, drafters);
      ASSERT_EQ(alone[0].best(kHostileVocabulary), candidates[i].best(kHostileVocabulary)) << "as if it were alone";
    }
  }
  EXPECT_GT(nodes, 2000);
}

TEST(HostileDrafter, AVocabularyOfOneIsEnough) {
  HostileSequence sequence(6, 1);
  for (std::size_t size = 1; size < 100; ++size) EXPECT_EQ(round_of(sequence, size).size(), 3u);
  EXPECT_THROW(HostileDrafter(6, 0), std::logic_error);
}

}  // namespace
}  // namespace espalier
