// What one sequence has computed, others find: exactly as far as the tokens agree, with the bytes they would have
// computed themselves, and never under another salt.
#include "decode/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "cache/testing/cache_harness.h"
#include "device/conformance/random_values.h"

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tail = PrefixIndex::Tail;

constexpr std::int64_t kNoLimit = 1000;

// A cache with blocks of 4 slots and two memories, in which every position holds a number that depends on all tokens up
// to it, and its index. A text is a string, a token a character of it.
class IndexedCache {
 public:
  explicit IndexedCache(std::int64_t blocks, CacheStrategy strategy = CacheStrategy::shared)
      : harness_({.strategy = strategy, .device = CacheDevice::checked}, blocks, DType::f16, 2),
        index(harness_.cache) {}

  KvCache& cache() { return harness_.cache; }
  FaultyDevice& device() { return *harness_.device; }
  const BlockTables& tables() { return cache().tables(); }
  std::int64_t length(SequenceId sequence) { return cache().length(sequence); }
  std::int64_t free_blocks() { return cache().free_positions() / cache().block_size(); }
  std::int32_t block(SequenceId sequence, std::size_t i) { return cache().blocks(sequence)[i]; }

  static std::vector<std::int32_t> ids(const std::string& text) { return {text.begin(), text.end()}; }

  // The sequence computes what it lacks of the text; false when blocks are short.
  bool try_compute(SequenceId sequence, const std::string& text) {
    const std::int64_t begin = length(sequence), rows = std::ssize(text) - begin;
    if (rows == 0) return true;
    std::optional<Branch> branch = cache().begin(sequence, rows);
    if (!branch) return false;
    const auto numbers = numbers_of(text, begin);
    for (const std::size_t memory : {0, 1}) harness_.write(*branch, begin, numbers, memory);
    KeptRows kept{.to = begin};
    for (std::int64_t p = begin; p < std::ssize(text); ++p) kept.from.push_back(static_cast<std::int32_t>(p));
    branch->keep(cache().memory(1), kept);
    branch->commit_length(rows);
    return true;
  }
  void compute(SequenceId sequence, const std::string& text) {
    check(try_compute(sequence, text), "no room for '{}'", text);
  }
  SequenceId computed(const std::string& text) {
    const SequenceId sequence = cache().create();
    compute(sequence, text);
    return sequence;
  }

  void publish(SequenceId sequence, const std::string& text, Tail tail = Tail::keep, const std::string& salt = "") {
    index.publish(sequence, ids(text), salt, tail);
  }
  // Computed, published and released.
  void leave(const std::string& text, Tail tail = Tail::keep, const std::string& salt = "") {
    const SequenceId sequence = computed(text);
    publish(sequence, text, tail, salt);
    cache().release(sequence);
  }

  std::int64_t extend(SequenceId sequence, const std::string& text, std::int64_t most = kNoLimit,
                      const std::string& salt = "") {
    const std::int64_t after = index.extend(sequence, ids(text), most, salt);
    EXPECT_EQ(after, length(sequence));
    expect_holds(sequence, text);
    return after;
  }
  SequenceId extended(const std::string& text) {
    const SequenceId sequence = cache().create();
    extend(sequence, text);
    return sequence;
  }
  std::int64_t found(const std::string& text, std::int64_t most = kNoLimit, const std::string& salt = "") {
    return index.find(ids(text), most, salt).length;
  }

  void expect_holds(SequenceId sequence, const std::string& text) {
    const auto numbers = numbers_of(text.substr(0, static_cast<std::size_t>(length(sequence))), 0);
    for (const std::size_t memory : {0, 1})
      EXPECT_EQ(harness_.read(sequence, 0, length(sequence), memory), numbers) << "memory " << memory << ", " << text;
  }

 private:
  CacheHarness harness_;

  static std::vector<std::int64_t> numbers_of(const std::string& text, std::int64_t begin) {
    std::vector<std::int64_t> numbers;
    std::uint64_t state = 1;
    for (const char token : text) {
      state = mix64(state * 31 + static_cast<std::uint64_t>(token));
      numbers.push_back(static_cast<std::int64_t>(state >> 43));  // 21 bits fit a slot
    }
    return {numbers.begin() + begin, numbers.end()};
  }

 public:
  PrefixIndex index;  // behind the cache it needs
};

class PrefixIndexTest : public testing::Test, protected IndexedCache {
 protected:
  PrefixIndexTest() : IndexedCache(12) {}
};

// --- what is found --------------------------------------------------------------------------------------------------

TEST_F(PrefixIndexTest, AnEmptyIndexHasNothing) {
  const SequenceId a = extended("abcd");
  EXPECT_EQ(length(a), 0);
  EXPECT_EQ(index.evictable(), 0);
  EXPECT_EQ(index.evict(5), 0);
  EXPECT_EQ(index.counts().hits, 0);
}

TEST_F(PrefixIndexTest, FullBlocksAreSharedAndNotCopied) {
  const SequenceId a = computed("abcdefghij");
  publish(a, "abcdefghij");
  const std::int64_t free = free_blocks();
  const SequenceId b = extended("abcdefghxx");
  EXPECT_EQ(length(b), 8) << "the last block is still written";
  EXPECT_EQ(block(b, 1), block(a, 1));
  EXPECT_EQ(free_blocks(), free);
  EXPECT_EQ(index.counts().hits, 1);
  EXPECT_EQ(index.counts().positions_reused, 8);
}

TEST_F(PrefixIndexTest, TheBeginningOfABlockIsCopiedIntoABlockOfTheSequencesOwn) {
  const SequenceId a = computed("abcdefgh");
  publish(a, "abcdefgh");
  const SequenceId b = extended("abcdefxyz");
  EXPECT_EQ(length(b), 6);
  EXPECT_EQ(block(b, 0), block(a, 0));
  EXPECT_TRUE(tables().writable(block(b, 1)));
  compute(b, "abcdefxyz");
  expect_holds(b, "abcdefxyz");
  expect_holds(a, "abcdefgh");
}

TEST_F(PrefixIndexTest, ThePartialHitIsFromTheChildThatHasMostInCommon) {
  for (const std::string text : {"aazz", "abaa", "abcz", "abzz", "b"}) leave(text, Tail::publish);
  EXPECT_EQ(length(extended("abcd")), 3);
  EXPECT_EQ(length(extended("abyy")), 2);
  EXPECT_EQ(length(extended("azzz")), 1);
  EXPECT_EQ(length(extended("bbbb")), 1);
  EXPECT_EQ(length(extended("zzzz")), 0);
}

TEST_F(PrefixIndexTest, WhereTheLimitEndsInsideABlockItsBeginningIsCopied) {
  leave("abcdefgh");
  for (std::int64_t most = 0; most <= 9; ++most) {
    const SequenceId b = cache().create();
    EXPECT_EQ(extend(b, "abcdefgh", most), std::min<std::int64_t>(most, 8));
    cache().release(b);
  }
}

TEST_F(PrefixIndexTest, ASequenceThatIsAsLongAsTheLimitStaysAsItIs) {
  leave("abcdefgh");
  const SequenceId a = computed("abcdef");
  const std::int32_t own = block(a, 0);
  EXPECT_EQ(extend(a, "abcdefgh", 5), 6);
  EXPECT_EQ(extend(a, "abcdefgh", 6), 6);
  EXPECT_EQ(block(a, 0), own);
}

TEST_F(PrefixIndexTest, FindSaysWhatExtendWouldGiveAndIsNoUse) {
  leave("abcdefgh");
  leave("wxyz");
  const PrefixHit hit = index.find(ids("abcdefx"), kNoLimit, "");
  EXPECT_EQ(hit.length, 6);
  EXPECT_EQ(hit.blocks.size(), 1u);
  EXPECT_EQ(found("abcdefgh", 7), 7);
  EXPECT_EQ(tables().references(hit.blocks[0]), 0);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found("abcdefgh"), 4) << "still the least recently used";
}

TEST_F(PrefixIndexTest, SaltsNeverSeeEachOthersBlocks) {
  leave("abcd", Tail::keep, "mine");
  EXPECT_EQ(found("abcd"), 0);
  EXPECT_EQ(found("abcd", kNoLimit, "yours"), 0);
  EXPECT_EQ(found("abcd", kNoLimit, "mine"), 4);
  leave("abcd", Tail::keep, "yours");
  EXPECT_EQ(index.size(), 2);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found("abcd", kNoLimit, "mine"), 0);
  EXPECT_EQ(found("abcd", kNoLimit, "yours"), 4);
}

// Two equal prompts that arrive together: what one has published the other need not compute.
TEST_F(PrefixIndexTest, ASequenceThatEndsInsideABlockTakesTheIndexsInsteadWhereThatIsLonger) {
  const SequenceId a = computed("abcdef"), b = computed("abcdefghijkl");
  publish(b, "abcdefghijkl");
  const std::int32_t own = block(a, 0);
  EXPECT_EQ(extend(a, "abcdefghijxx"), 10);
  EXPECT_EQ(block(a, 0), own) << "full blocks stay";
  EXPECT_EQ(block(a, 1), block(b, 1));
  EXPECT_EQ(index.counts().positions_reused, 4);
}

TEST_F(PrefixIndexTest, ASequenceKeepsItsOwnBlockWhereNothingIsGained) {
  leave("abcdefxx");
  const SequenceId a = computed("abcdefg");
  const std::int32_t own = block(a, 1);
  EXPECT_EQ(extend(a, "abcdefgh"), 7);
  EXPECT_EQ(block(a, 1), own);
  EXPECT_EQ(index.counts().hits, 0);
}

// --- publishing -----------------------------------------------------------------------------------------------------

TEST_F(PrefixIndexTest, OnlyTheBlocksOfTheGivenTokensArePublished) {
  const SequenceId a = computed("abcdefghijkl");
  publish(a, "abcdefg");
  EXPECT_EQ(found("abcdefghijkl"), 4);
  publish(a, "abcdefgh");
  EXPECT_EQ(found("abcdefghijkl"), 8);
  EXPECT_EQ(index.counts().published, 2);
}

TEST_F(PrefixIndexTest, ABlockEqualToOneInTheIndexIsNotPublishedAgainAndWhatFollowsGoesBelowIt) {
  const SequenceId a = computed("abcd"), b = computed("abcdefgh");
  publish(a, "abcd");
  publish(b, "abcdefgh");
  EXPECT_EQ(index.size(), 2);
  EXPECT_FALSE(tables().published(block(b, 0)));
  const SequenceId c = extended("abcdefgh");
  EXPECT_EQ(length(c), 8);
  EXPECT_EQ(block(c, 0), block(a, 0));
  EXPECT_EQ(block(c, 1), block(b, 1));
}

TEST_F(PrefixIndexTest, AParentNobodyHoldsIsNotEvictedWhileSomebodyHoldsAChild) {
  const SequenceId a = computed("abcd"), b = computed("abcdefgh");
  publish(a, "abcd");
  publish(b, "abcdefgh");
  cache().release(a);
  EXPECT_EQ(tables().cached_blocks(), 1);
  EXPECT_EQ(index.evictable(), 0);
  EXPECT_EQ(index.evict(2), 0);
  cache().release(b);
  EXPECT_EQ(index.evictable(), 2);
  EXPECT_EQ(index.evict(2), 2);
  EXPECT_EQ(free_blocks(), 12);
}

TEST_F(PrefixIndexTest, TwinsAreFullBlocksThatTheIndexHasInOthers) {
  const SequenceId a = computed("abcdefgh"), b = computed("abcdefghijkl");
  const auto twins = [&](SequenceId sequence, const std::string& text, const std::string& salt = "") {
    return index.twins(sequence, ids(text), salt);
  };
  EXPECT_EQ(twins(b, "abcdefghijkl"), 0);
  publish(a, "abcd");
  EXPECT_EQ(twins(a, "abcdefgh"), 0) << "it is its own";
  EXPECT_EQ(twins(b, "abcdefghijkl"), 1);
  publish(a, "abcdefgh");
  EXPECT_EQ(twins(b, "abcdefghijkl"), 2);
  EXPECT_EQ(twins(b, "abcdefg"), 1) << "of these tokens";
  EXPECT_EQ(twins(b, "abcdefghijkl", "salt"), 0);
  const SequenceId c = extended("abcdefgh");
  EXPECT_EQ(twins(c, "abcdefgh"), 0) << "it shares them";
  publish(b, "abcdefghijkl");
  EXPECT_EQ(twins(b, "abcdefghijkl"), 2) << "the third is its own";
}

TEST_F(PrefixIndexTest, ATailIsFoundAndCopied) {
  leave("abcdef", Tail::publish);
  EXPECT_EQ(index.size(), 2);
  const SequenceId b = extended("abcdefgh"), c = extended("abcdex");
  EXPECT_EQ(length(b), 6);
  EXPECT_EQ(length(c), 5);
  compute(b, "abcdefgh");
  expect_holds(b, "abcdefgh");
}

TEST_F(PrefixIndexTest, ATailTheIndexKnowsIsNotPublished) {
  leave("abcdefgh");
  leave("abcdef", Tail::publish);
  leave("ab", Tail::publish);
  EXPECT_EQ(index.size(), 2);
  EXPECT_EQ(free_blocks(), 10);
}

TEST_F(PrefixIndexTest, ALongerTailReplacesShorterOnesThatNobodyHolds) {
  const SequenceId held = computed("a");
  publish(held, "a", Tail::publish);
  leave("ab", Tail::publish);
  leave("aab", Tail::publish);  // stands between the others
  leave("abc", Tail::publish);
  EXPECT_EQ(index.size(), 3) << "a, aab, abc";
  leave("abcd");
  EXPECT_EQ(index.size(), 3) << "a, aab, abcd";
  cache().release(held);
  leave("abce");
  EXPECT_EQ(index.size(), 3) << "aab, abcd, abce";
  EXPECT_EQ(found("aabc"), 3);
  EXPECT_EQ(found("abcd"), 4);
  EXPECT_EQ(index.counts().evictions, 0);
}

TEST_F(PrefixIndexTest, ASequenceThatPublishedItsTailGoesOnInACopy) {
  const SequenceId a = computed("abcdef");
  publish(a, "abcdef", Tail::publish);
  const std::int32_t tail = block(a, 1);
  compute(a, "abcdefgh");
  EXPECT_NE(block(a, 1), tail);
  expect_holds(a, "abcdefgh");
  EXPECT_EQ(length(extended("abcdefgh")), 6);
  publish(a, "abcdefgh");
  EXPECT_EQ(index.size(), 2) << "the tail is no longer needed";
  EXPECT_FALSE(tables().published(tail));
}

TEST_F(PrefixIndexTest, ATailGrowsWhenItsSequenceSaysMoreOfIt) {
  const SequenceId a = computed("abcdefgh");
  publish(a, "abcdef", Tail::publish);
  EXPECT_EQ(found("abcdefgh"), 6);
  publish(a, "abcdefgh");
  EXPECT_EQ(index.size(), 2);
  const SequenceId b = extended("abcdefgh");
  EXPECT_EQ(length(b), 8);
  EXPECT_EQ(block(b, 1), block(a, 1));
}

TEST_F(PrefixIndexTest, ASequenceCutInsideASharedBlockFindsItAgain) {
  leave("abcdefgh");
  const SequenceId a = extended("abcdefgh");
  cache().truncate(a, 6);
  publish(a, "abcdef", Tail::publish);
  EXPECT_EQ(index.size(), 2) << "its block is in the index";
  EXPECT_EQ(extend(a, "abcdefgx"), 7) << "a copy of the block it held";
  cache().truncate(a, 6);
  EXPECT_EQ(extend(a, "abcdefgh"), 8);
  EXPECT_EQ(free_blocks(), 10);
}

// --- eviction -------------------------------------------------------------------------------------------------------

TEST_F(PrefixIndexTest, TheLeastRecentlyUsedGoesFirstAndChildrenBeforeParents) {
  leave("abcdefgh");
  leave("wxyz");
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found("abcdefgh"), 4);
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found("abcdefgh"), 0);
  EXPECT_EQ(found("wxyz"), 4);
  EXPECT_EQ(index.evict(9), 1);
  EXPECT_EQ(index.counts().evictions, 3);
}

TEST_F(PrefixIndexTest, AHitIsAUseOfAllBlocksUpToIt) {
  leave("abcdefghijkl");
  leave("wxyz");
  cache().release(extended("abcdefgh"));
  EXPECT_EQ(index.evict(2), 2);
  EXPECT_EQ(found("abcdefghijkl"), 8) << "the last block was not used again";
  EXPECT_EQ(found("wxyz"), 0);
}

TEST_F(PrefixIndexTest, PublishingWhatIsKnownIsAUse) {
  leave("abcd");
  leave("wxyz");
  leave("abcd");
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(found("abcd"), 4);
}

TEST_F(PrefixIndexTest, WhatSomebodyHoldsStays) {
  leave("abcdefghijkl");
  const SequenceId a = extended("abcdefgh");
  EXPECT_EQ(index.evictable(), 1);
  index.clear();
  EXPECT_EQ(found("abcdefghijkl"), 8);
  expect_holds(a, "abcdefgh");
  cache().release(a);
  EXPECT_EQ(index.evictable(), 2);
  index.clear();
  EXPECT_EQ(index.size(), 0);
  EXPECT_EQ(free_blocks(), 12);
}

TEST_F(PrefixIndexTest, WhenBlocksAreShortOneIsEvictedForACopy) {
  leave("wxyz");
  leave("abcd");
  const SequenceId full = computed(std::string(40, 'f'));
  EXPECT_EQ(free_blocks(), 0);
  const SequenceId a = extended("abcx");
  EXPECT_EQ(length(a), 3);
  EXPECT_EQ(found("wxyz"), 0);
  EXPECT_EQ(found("abcd"), 4);
  cache().release(full);
}

TEST_F(PrefixIndexTest, TheSourceOfACopyIsNotEvictedForItAndThenThereIsNone) {
  leave("abcdefgh");
  const SequenceId full = computed(std::string(40, 'f'));
  const SequenceId a = extended("abcdefx");
  EXPECT_EQ(length(a), 4) << "the full block needs no room";
  EXPECT_EQ(found("abcdefgh"), 8);
  cache().release(a);
  EXPECT_EQ(length(extended("abx")), 2) << "the block behind the source made room";
  EXPECT_EQ(length(extended("abx")), 0);
  expect_holds(full, std::string(40, 'f'));
}

TEST_F(PrefixIndexTest, ASequenceGivesUpItsLastBlockOnlyForACopyThatFits) {
  leave("abcdefgh");
  const SequenceId full = computed(std::string(36, 'f')), a = computed("abc");
  EXPECT_EQ(free_blocks(), 0);
  const SequenceId b = cache().fork(a, 1);  // now the block of both is no longer given back
  EXPECT_EQ(extend(b, "abx"), 2) << "the leaf behind was evicted for it";
  EXPECT_EQ(found("abcdefgh"), 4);
  EXPECT_EQ(extend(b, "abcx"), 3) << "its own block makes room";
  const SequenceId c = cache().fork(a, 1);
  EXPECT_EQ(extend(c, "abx"), 1) << "nothing to evict but the source";
  expect_holds(a, "abc");
  expect_holds(full, std::string(36, 'f'));
}

TEST_F(PrefixIndexTest, ADeviceThatFailsLeavesTheWholeBlocks) {
  leave("abcdefgh");
  const SequenceId a = cache().create();
  device().fail_at(1);
  EXPECT_THROW(index.extend(a, ids("abcdefx"), kNoLimit, ""), DeviceError);
  device().never_fail();
  EXPECT_EQ(length(a), 4);
  EXPECT_EQ(extend(a, "abcdefx"), 6);
}

// --- our mistakes ---------------------------------------------------------------------------------------------------

TEST_F(PrefixIndexTest, ASequenceLongerThanItsTokensIsRefused) {
  const SequenceId a = computed("abcdef");
  EXPECT_THAT([&] { index.extend(a, ids("abcde"), kNoLimit, ""); },
              ThrowsMessage<std::logic_error>(HasSubstr("has 6 positions, 5 tokens are given")));
  EXPECT_THROW(index.extend(a, ids("abcdef"), -1, ""), std::logic_error);
  EXPECT_THROW(index.find(ids("abcdef"), -1, ""), std::logic_error);
}

TEST_F(PrefixIndexTest, TokensThatAreNotCommittedAreNotPublished) {
  const SequenceId a = computed("abcd");
  EXPECT_THAT([&] { publish(a, "abcde", Tail::publish); },
              ThrowsMessage<std::logic_error>(HasSubstr("5 tokens of sequence 0, which has 4 positions")));
  EXPECT_EQ(index.size(), 0);
}

TEST_F(PrefixIndexTest, ABlockIsInTheIndexUnderOneTextAndOneSalt) {
  const SequenceId a = computed("abcd");
  publish(a, "abcd", Tail::keep, "mine");
  EXPECT_THROW(publish(a, "abcd", Tail::keep, "yours"), std::logic_error);
  EXPECT_THROW(publish(a, "abce", Tail::keep, "mine"), std::logic_error);
  EXPECT_EQ(found("abcd", kNoLimit, "yours"), 0);
  EXPECT_EQ(found("abce", kNoLimit, "mine"), 3);
}

// --- any run of calls -----------------------------------------------------------------------------------------------

// Random texts over two letters, so that many begin alike, beside a list of what was published.
class RandomTexts {
 public:
  RandomTexts(std::uint64_t seed, std::int64_t blocks, CacheStrategy strategy)
      : random_(seed), held_(blocks, strategy), blocks_(blocks) {}

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE(testing::Message() << "operation " << i);
      one_operation();
    }
    EXPECT_TRUE(evictions() == 0 || short_of_blocks()) << "what is found would not be compared";
    release_everything();
  }

  std::int64_t evictions() const { return held_.index.counts().evictions; }
  std::int64_t reused() const { return held_.index.counts().positions_reused; }

 private:
  struct Running {
    SequenceId id = 0;
    std::string text = {};  // all of it, computed or not
    std::string salt = {};
  };

  bool short_of_blocks() const { return blocks_ < 100; }

  void one_operation() {
    if (running_.empty() || random_.one_in(4)) return start();
    const auto chosen = static_cast<std::size_t>(random_.below(std::ssize(running_)));
    if (running_.size() > 5) return finish(chosen);
    Running& run = running_[chosen];
    switch (random_.below(8)) {
      case 0: return finish(chosen);
      case 1: return fork(run);
      case 2: return cut(run);
      case 3: return publish(run, Tail::keep);
      case 4: return evict();
      case 5: return extend(run);
      default: return compute(run);
    }
  }

  std::string random_text(std::int64_t size) {
    std::string text;
    for (std::int64_t i = 0; i < size; ++i) text.push_back(random_.one_in(4) ? 'b' : 'a');
    return text;
  }

  void start() {
    running_.push_back({held_.cache().create(), random_text(random_.between(1, 20)), random_.one_in(4) ? "salt" : ""});
    extend(running_.back());
  }

  // Nothing but a hit changes the sequence, and as long as nothing was evicted it is all that was ever published.
  void extend(Running& run) {
    const std::int64_t before = held_.length(run.id);
    const std::int64_t most = random_.one_in(3) ? random_.between(0, std::ssize(run.text)) : kNoLimit;
    const bool room = held_.free_blocks() > 0;
    const std::int64_t after = held_.extend(run.id, run.text, most, run.salt);
    const std::int64_t offered = std::max(before, std::min(most, longest_published(run)));
    EXPECT_LE(after, offered);
    if (room && evictions() == 0) {
      EXPECT_EQ(after, offered) << run.text;
    }
  }

  std::int64_t longest_published(const Running& run) {
    std::int64_t longest = 0;
    for (const std::string& text : published_[run.salt])
      longest = std::max(longest, std::ranges::mismatch(text, run.text).in1 - text.begin());
    return longest;
  }

  void compute(Running& run) {
    const std::int64_t length = held_.length(run.id);
    if (length == std::ssize(run.text)) run.text += random_text(3);
    const std::int64_t until = random_.one_in(2) ? random_.between(length, std::ssize(run.text)) : std::ssize(run.text);
    held_.try_compute(run.id, run.text.substr(0, static_cast<std::size_t>(until)));
    held_.expect_holds(run.id, run.text);
  }

  void publish(Running& run, Tail tail) {
    std::string text = run.text.substr(0, static_cast<std::size_t>(random_.between(0, held_.length(run.id))));
    held_.publish(run.id, text, tail, run.salt);
    if (tail == Tail::keep) text.resize(text.size() / 4 * 4);
    published_[run.salt].push_back(text);
  }

  void fork(const Running& run) {
    const std::int64_t length = random_.between(0, held_.length(run.id));
    Running other{held_.cache().fork(run.id, length), run.text.substr(0, static_cast<std::size_t>(length)), run.salt};
    other.text += random_text(5);
    running_.push_back(other);
  }

  void cut(Running& run) {
    const std::int64_t length = random_.between(0, held_.length(run.id));
    held_.cache().truncate(run.id, length);
    run.text = run.text.substr(0, static_cast<std::size_t>(length)) + random_text(5);
  }

  void evict() {
    if (!short_of_blocks()) return;
    const std::int64_t expected = held_.index.evictable(), most = random_.between(0, blocks_);
    EXPECT_EQ(held_.index.evict(most), std::min(expected, most));
    EXPECT_EQ(held_.index.evictable(), expected - std::min(expected, most));
  }

  void finish(std::size_t chosen) {
    const Running run = running_[chosen];
    if (!random_.one_in(3)) publish(running_[chosen], Tail::publish);
    held_.cache().release(run.id);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }

  void release_everything() {
    for (const Running& run : running_) {
      held_.expect_holds(run.id, run.text);
      held_.cache().release(run.id);
    }
    EXPECT_EQ(held_.index.evictable(), held_.index.size());
    held_.index.clear();
    EXPECT_EQ(held_.index.size(), 0);
    EXPECT_EQ(held_.free_blocks(), blocks_);
  }

  RandomValues random_;
  IndexedCache held_;
  std::int64_t blocks_;
  std::vector<Running> running_;
  std::map<std::string, std::vector<std::string>> published_;  // by salt
};

TEST(PrefixIndexRandom, FindsAllThatWasEverPublishedWhileThereIsRoom) {
  std::int64_t reused = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomTexts texts(seed, 400, seed % 2 == 0 ? CacheStrategy::shared : CacheStrategy::replicate);
    texts.run(300);
    reused += texts.reused();
  }
  EXPECT_GT(reused, 300) << "the runs are about hits";
}

TEST(PrefixIndexRandom, GivesTheRightBytesAndAllBlocksBackWhereBlocksAreShort) {
  std::int64_t reused = 0, evictions = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomTexts texts(seed, 16, seed % 2 == 0 ? CacheStrategy::shared : CacheStrategy::replicate);
    texts.run(400);
    reused += texts.reused();
    evictions += texts.evictions();
  }
  EXPECT_GT(reused, 300) << "the runs are about hits";
  EXPECT_GT(evictions, 100) << "and about room for them";
}

}  // namespace
}  // namespace espalier
