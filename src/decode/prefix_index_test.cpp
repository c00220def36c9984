// What one sequence has computed, others find: exactly as far as the tokens agree, with the bytes they would have
// computed themselves, and never under another salt.
#include "decode/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "decode/testing/indexed_cache.h"

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Tail = PrefixIndex::Tail;

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

}  // namespace
}  // namespace espalier
