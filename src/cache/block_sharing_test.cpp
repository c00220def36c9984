// Blocks that several sequences hold, or that are kept for whoever comes: nobody writes them, everybody reads the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "cache/testing/cache_harness.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Values = std::vector<std::int64_t>;
using Path = std::vector<std::int32_t>;

static_assert(sizeof(SequenceId) == 8, "a server that opens a thousand branches a second must not run out of ids");

class BlockSharing : public testing::TestWithParam<CacheSetting> {
 protected:
  KvCache& cache() { return harness_.cache; }
  const BlockTables& tables() { return cache().tables(); }
  const KvMemory& second() { return cache().memory(1); }
  std::int64_t size() { return cache().block_size(); }
  Values read(SequenceId sequence) { return harness_.read(sequence, 0, cache().length(sequence)); }
  std::int32_t block(SequenceId sequence, std::size_t index) { return cache().blocks(sequence)[index]; }

  // Values in both memories.
  SequenceId in_both(const Values& values) {
    const SequenceId id = cache().create();
    Branch branch = harness_.branch(id, values);
    harness_.write(branch, 0, values, 1);
    Path all;
    for (std::size_t i = 0; i < values.size(); ++i) all.push_back(static_cast<std::int32_t>(i));
    branch.keep(second(), {.to = 0, .from = all});
    branch.commit_length(std::ssize(values));
    return id;
  }

  CacheHarness harness_{GetParam(), 12, DType::f16, 2};
};

INSTANTIATE_TEST_SUITE_P(Settings, BlockSharing,
                         testing::ValuesIn(all_settings({CacheDevice::plain, CacheDevice::checked})), NameOfSetting());

TEST_P(BlockSharing, AForkHoldsTheSameBlocksAndGetsOneOfItsOwnOnlyWhenItWrites) {
  const SequenceId a = in_both(counting(0, 6));
  const std::int64_t free = cache().free_positions();
  const SequenceId b = cache().fork(a, 6), c = cache().fork(a, 3);
  EXPECT_EQ(cache().free_positions(), free);
  EXPECT_EQ(block(a, 1), block(b, 1));
  EXPECT_EQ(tables().references(block(a, 0)), 3);
  const std::int64_t copied = cache().counts().bytes_branched;
  harness_.branch(b, counting(20, 3)).commit_length(3);
  EXPECT_EQ(block(a, 0), block(b, 0));
  EXPECT_NE(block(a, 1), block(b, 1));
  const std::int64_t two_positions = 2 * (cache().memory().slot_bytes() + second().slot_bytes());
  const bool all = GetParam().strategy == CacheStrategy::replicate;
  EXPECT_EQ(cache().counts().bytes_branched - copied, all ? 2 * two_positions : two_positions) << "of the second block";
  harness_.branch(c, counting(30, 2)).commit_path(Path{4});
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(read(b), ElementsAre(0, 1, 2, 3, 4, 5, 20, 21, 22));
  EXPECT_THAT(read(c), ElementsAre(0, 1, 2, 31));
  EXPECT_EQ(harness_.read(c, 0, 3, 1), counting(0, 3));
  for (const SequenceId id : {a, b, c}) cache().release(id);
  EXPECT_EQ(cache().free_positions(), 12 * size());
}

TEST_P(BlockSharing, ARollbackOfAForkGivesItsCopyBack) {
  const SequenceId a = in_both(counting(0, 6)), b = cache().fork(a, 6);
  const std::int64_t free = cache().free_positions();
  harness_.branch(b, counting(20, 3)).rollback();
  EXPECT_EQ(block(a, 1), block(b, 1));
  EXPECT_EQ(cache().free_positions(), free);
  EXPECT_THAT(read(b), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_P(BlockSharing, APublishedBlockIsNotWrittenByTheOneSequenceThatHoldsIt) {
  const SequenceId a = in_both(counting(0, 8));
  const std::int32_t published = block(a, 1);
  cache().publish(published);
  EXPECT_THROW(cache().publish(published), std::logic_error);
  cache().truncate(a, 6);
  harness_.branch(a, counting(20, 2)).commit_length(2);
  EXPECT_NE(block(a, 1), published);
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4, 5, 20, 21));
  EXPECT_EQ(harness_.read_block(published), counting(4, 4));
  EXPECT_EQ(harness_.read_block(published, 1), counting(4, 4));
}

TEST_P(BlockSharing, APublishedBlockStaysWhenNobodyHoldsItUntilItIsEvicted) {
  const SequenceId a = in_both(counting(0, 9));
  const Path blocks(cache().blocks(a).begin(), cache().blocks(a).end());
  cache().publish(blocks[0]);
  cache().publish(blocks[1]);
  EXPECT_THAT([&] { cache().evict(blocks[0]); }, ThrowsMessage<std::logic_error>(HasSubstr("somebody holds it")));
  cache().release(a);
  EXPECT_EQ(cache().free_positions(), 10 * size());
  EXPECT_EQ(tables().cached_blocks(), 2);
  const SequenceId b = cache().create();
  cache().share(b, std::span(blocks).first(2));
  EXPECT_EQ(tables().cached_blocks(), 0);
  EXPECT_EQ(read(b), counting(0, 8));
  harness_.branch(b, counting(20, 1)).commit_length(1);
  EXPECT_EQ(harness_.read(b, 7, 9), (Values{7, 20}));
  cache().release(b);
  cache().evict(blocks[1]);
  cache().evict(blocks[0]);
  EXPECT_EQ(cache().free_positions(), 12 * size());
  EXPECT_THAT([&] { cache().evict(blocks[0]); }, ThrowsMessage<std::logic_error>(HasSubstr("it is not published")));
  const SequenceId c = cache().create();
  EXPECT_THROW(cache().share(c, std::span(blocks).first(1)), std::logic_error) << "a free block is nobody's";
}

TEST_P(BlockSharing, ASequenceGoesOnWithTheBeginningOfABlockInABlockOfItsOwn) {
  const SequenceId a = in_both(counting(0, 8)), b = cache().create();
  cache().share(b, cache().blocks(a).first(1));
  ASSERT_TRUE(cache().append_copy(b, block(a, 1), 3));
  EXPECT_EQ(read(b), counting(0, 7));
  EXPECT_EQ(second().written_from(cache().blocks(b), 7), 0);
  EXPECT_EQ(harness_.read(b, 0, 7, 1), counting(0, 7));
  harness_.branch(b, counting(20, 2)).commit_length(2);
  EXPECT_EQ(read(a), counting(0, 8));
  EXPECT_THROW((void)cache().append_copy(b, block(a, 1), 1), std::logic_error) << "it ends inside a block";
}

TEST_P(BlockSharing, AFullPoolIsAnAnswerAndCachedBlocksAreNotFree) {
  const SequenceId a = in_both(counting(0, 4 * size()));
  const Path blocks(cache().blocks(a).begin(), cache().blocks(a).end());
  for (std::int32_t published : blocks) cache().publish(published);
  cache().release(a);
  const SequenceId b = cache().create();
  EXPECT_FALSE(cache().begin(b, 8 * size() + 1));
  EXPECT_TRUE(cache().begin(b, 8 * size()));
  const SequenceId c = harness_.sequence(counting(0, 8 * size())), d = cache().create();
  EXPECT_FALSE(cache().append_copy(d, blocks[0], 2));
  EXPECT_EQ(cache().length(d), 0);
  const SequenceId fork = cache().fork(c, 3);
  EXPECT_FALSE(cache().begin(fork, 1)) << "the copy it would need";
  cache().evict(blocks[3]);
  EXPECT_TRUE(cache().begin(fork, 1));
}

TEST_P(BlockSharing, WhatAMemoryHasNotWrittenStaysMissingForWhoeverSharesIt) {
  const SequenceId a = in_both(counting(0, 6));
  harness_.branch(a, counting(20, 3)).commit_length(3);  // the second memory stays behind
  EXPECT_EQ(second().written_from(cache().blocks(a), 6), 0);
  EXPECT_EQ(second().written_from(cache().blocks(a), 9), 9);
  cache().publish(block(a, 0));
  cache().publish(block(a, 1));
  const SequenceId b = cache().create();
  cache().share(b, cache().blocks(a).first(2));
  EXPECT_EQ(second().written_from(cache().blocks(b), 8), 8);
  EXPECT_EQ(second().written(block(b, 1)), (SlotRange{0, 2}));
  cache().truncate(b, 6);
  EXPECT_EQ(second().written_from(cache().blocks(b), 6), 0);
}

// An EAGLE head writes the committed places it lacks and the root's; the rest of its tree is dropped.
TEST_P(BlockSharing, AMemoryThatLagsBehindWritesCommittedPlacesInTheNextBranch) {
  const SequenceId a = in_both(counting(0, 5));
  harness_.branch(a, counting(20, 2)).commit_length(2);
  const SequenceId b = cache().fork(a, 7);
  std::optional<Branch> branch = cache().begin(a, 4, 5);
  ASSERT_TRUE(branch);
  harness_.write(*branch, 7, counting(40, 4));
  harness_.write(*branch, 5, counting(60, 5), 1);
  branch->keep(second(), {.to = 5, .from = {5, 6, 7}});
  branch->commit_path(Path{7, 9});
  EXPECT_EQ(read(a), (Values{0, 1, 2, 3, 4, 20, 21, 40, 42}));
  EXPECT_EQ(harness_.read(a, 0, 8, 1), (Values{0, 1, 2, 3, 4, 60, 61, 62}));
  EXPECT_EQ(second().written_from(cache().blocks(a), 9), 9);
  EXPECT_EQ(second().written_from(cache().blocks(a), 8), 0);
  EXPECT_EQ(second().written_from(cache().blocks(b), 7), 7) << "the fork's places are as they were";
  EXPECT_EQ(second().written_from(cache().blocks(b), 5), 0);
}

// A draft model keeps the accepted rows by places of its own.
TEST_P(BlockSharing, EveryMemoryKeepsItsRowsByItsOwnPath) {
  const SequenceId a = in_both(counting(0, 3));
  Branch branch = harness_.branch(a, counting(20, 6));
  harness_.write(branch, 3, counting(70, 6), 1);
  branch.keep(second(), {.to = 3, .from = {3, 6}});
  branch.commit_path(Path{3, 4, 7});
  EXPECT_EQ(read(a), (Values{0, 1, 2, 20, 21, 24}));
  EXPECT_EQ(harness_.read(a, 0, 5, 1), (Values{0, 1, 2, 70, 73}));
  EXPECT_EQ(second().written_from(cache().blocks(a), 5), 0);
  EXPECT_EQ(second().written_from(cache().blocks(a), 6), 6);
}

TEST_P(BlockSharing, AMemoryCannotKeepMoreThanIsCommitted) {
  const SequenceId a = in_both(counting(0, 3));
  Branch branch = harness_.branch(a, counting(20, 6));
  harness_.write(branch, 3, counting(70, 6), 1);
  branch.keep(second(), {.to = 3, .from = {3, 4, 5}});
  EXPECT_THAT(
      [&] {
        branch.commit_path(Path{3, 4});
      },
      ThrowsMessage<std::logic_error>(HasSubstr("keeps places up to 6, 5 are committed")));
  ASSERT_TRUE(branch.open());
  branch.commit_path(Path{3, 4, 5});
  EXPECT_EQ(harness_.read(a, 3, 6, 1), counting(70, 3));
}

TEST_P(BlockSharing, TruncatingIntoASharedBlockLeavesItToTheOthers) {
  const SequenceId a = in_both(counting(0, 7)), b = cache().fork(a, 7);
  cache().truncate(b, 5);
  EXPECT_EQ(read(a), counting(0, 7));
  EXPECT_EQ(harness_.read(a, 0, 7, 1), counting(0, 7));
  cache().release(a);
  harness_.branch(b, counting(20, 2)).commit_length(2);  // now the block is its own
  EXPECT_EQ(read(b), (Values{0, 1, 2, 3, 4, 20, 21}));
  EXPECT_EQ(second().written_from(cache().blocks(b), 7), 7) << "what was behind is another text's";
  EXPECT_EQ(second().written_from(cache().blocks(b), 5), 0);
}

TEST_P(BlockSharing, AnotherMemoryIsNotAddedWhileABranchIsOpen) {
  const SequenceId a = cache().create();
  const std::optional<Branch> branch = cache().begin(a, 1);
  EXPECT_THROW(cache().add_memory(second().shape()), std::logic_error);
  KvShape other = second().shape();
  other.block_size *= 2;
  EXPECT_THROW(KvMemory(*harness_.device, other, tables()), std::logic_error);
}

}  // namespace
}  // namespace espalier
