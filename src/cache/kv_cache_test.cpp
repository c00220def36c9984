// The invariants of the cache by name, for both strategies and both reorders. Random operations against a model are in
// kv_cache_random_test.cpp, failing devices in kv_cache_fault_test.cpp.
#include "cache/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "cache/testing/cache_harness.h"
#include "device/checked/testing/expect_violation.h"
#include "device/conformance/random_values.h"
#include "device/passing_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Values = std::vector<std::int64_t>;
using Path = std::vector<std::int32_t>;

class KvCacheTest : public testing::TestWithParam<CacheSetting> {
 protected:
  bool shared() const { return GetParam().strategy == CacheStrategy::shared; }
  bool fast() const { return GetParam().reorder == Reorder::fast; }
  KvCache& cache() { return harness_.cache; }
  Values read(SequenceId sequence) { return harness_.read(sequence, 0, cache().length(sequence)); }

  CacheHarness harness_{GetParam(), 12};
};

INSTANTIATE_TEST_SUITE_P(
    Settings, KvCacheTest,
    testing::ValuesIn(all_settings({CacheDevice::plain, CacheDevice::checked, CacheDevice::ascend})), NameOfSetting());

// --- tables ---------------------------------------------------------------------------------------------------------

TEST_P(KvCacheTest, PositionsMapToDistinctSlotsOfTheTablesBlocks) {
  const SequenceId a = harness_.sequence(counting(0, 9)), b = harness_.sequence(counting(20, 5));
  const Branch branch = harness_.branch(a, counting(100, 4));
  std::set<std::int32_t> slots;
  for (std::int64_t p = 0; p < 5; ++p) slots.insert(cache().slot(b, p));
  for (std::int64_t p = 0; p < 13; ++p) slots.insert(cache().slot(branch.id(), p));
  EXPECT_EQ(slots.size(), 18u);
  const std::int64_t size = cache().block_size();
  EXPECT_EQ(cache().slot(branch.id(), 10),
            cache().blocks(branch.id())[10 / static_cast<std::size_t>(size)] * size + 10 % size);
  EXPECT_THROW(cache().slot(branch.id(), 13), std::logic_error);
  EXPECT_THROW(cache().slot(a, 9), std::logic_error) << "the branch's row is not the sequence's";
  EXPECT_THROW(cache().slot(a, -1), std::logic_error);
}

TEST_P(KvCacheTest, AReleasedSequenceAndAClosedBranchAreUnknown) {
  const SequenceId a = cache().create();
  std::optional<Branch> branch = cache().begin(a, 3);
  const SequenceId id = branch->id();
  EXPECT_NE(id, a);
  EXPECT_THROW(cache().length(id), std::logic_error) << "a branch has no committed length";
  branch->rollback();
  EXPECT_THROW(cache().blocks(id), std::logic_error);
  EXPECT_THROW(branch->rollback(), std::logic_error);
  EXPECT_THROW(branch->commit_length(0), std::logic_error);
  EXPECT_THROW(branch->commit_path({}), std::logic_error);
  cache().release(a);
  EXPECT_THROW(cache().length(a), std::logic_error);
  EXPECT_THROW(cache().release(a), std::logic_error);
  EXPECT_GT(cache().create(), id) << "ids are never reused";
}

TEST_P(KvCacheTest, ASequenceWithAnOpenBranchIsLeftAlone) {
  const SequenceId a = harness_.sequence(counting(0, 6));
  Branch branch = harness_.branch(a, counting(10, 2));
  EXPECT_THROW(cache().truncate(a, 3), std::logic_error);
  EXPECT_THROW(cache().release(a), std::logic_error);
  EXPECT_THAT([&] { (void)cache().begin(a, 1); },
              ThrowsMessage<std::logic_error>(HasSubstr("begin of sequence 0, which has an open branch")));
  branch.commit_length(2);
  cache().truncate(a, 3);
  cache().release(a);
  EXPECT_EQ(cache().free_positions(), 12 * cache().block_size());
}

TEST_P(KvCacheTest, WhatIsNoLengthAndNoRowCountIsRefused) {
  const SequenceId a = harness_.sequence(counting(0, 6));
  EXPECT_THROW((void)cache().begin(a, 0), std::logic_error);
  EXPECT_THROW(cache().truncate(a, 7), std::logic_error);
  EXPECT_THROW(cache().truncate(a, -1), std::logic_error);
  EXPECT_THROW(cache().memory().layer(2), std::logic_error);
  Branch branch = harness_.branch(a, counting(10, 2));
  EXPECT_THROW(branch.commit_length(3), std::logic_error);
  EXPECT_THROW(branch.commit_length(-1), std::logic_error);
  EXPECT_TRUE(branch.open());
}

TEST(KvCache, AShapeThatCannotBeIsRefused) {
  const auto device = make_reference_device();
  const KvShape good{.layers = 1, .kv_heads = 1, .head_size = 1};
  const auto make = [&](KvShape shape, std::int64_t positions) {
    return [&device, shape, positions] { KvCache(*device, shape, positions); };
  };
  EXPECT_THROW(make(good, 0)(), std::logic_error);
  EXPECT_THROW(make(good, std::int64_t{1} << 40)(), std::logic_error);
  KvShape bad = good;
  bad.type = DType::q8_0;
  EXPECT_THAT(make(bad, 1), ThrowsMessage<std::logic_error>(HasSubstr("element type q8_0")));
  bad = good;
  bad.layers = 0;
  EXPECT_THROW(make(bad, 1)(), std::logic_error);
  make(good, 1)();
}

TEST_P(KvCacheTest, OnlyDevicesWithBucketsHavePaddingSlotsAndNobodyElseOwnsThem) {
  if (GetParam().device != CacheDevice::ascend) {
    EXPECT_TRUE(cache().tables().padding_blocks().empty());
    EXPECT_THROW(cache().tables().padding_slot(0), std::logic_error);
    return;
  }
  ASSERT_THAT(cache().tables().padding_blocks(), ElementsAre(0));
  EXPECT_EQ(cache().tables().padding_slot(63), 63);
  EXPECT_THROW(cache().tables().padding_slot(64), std::logic_error);
  const SequenceId a = cache().create();
  const std::optional<Branch> all = cache().begin(a, 12 * 128);
  EXPECT_THAT(cache().blocks(all->id()), testing::Not(testing::Contains(0)));
}

// --- commits and rollbacks ------------------------------------------------------------------------------------------

TEST_P(KvCacheTest, CommittingALengthKeepsTheFirstRows) {
  const SequenceId a = harness_.sequence(counting(0, 6));
  harness_.branch(a, counting(10, 5)).commit_length(3);
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4, 5, 10, 11, 12));
  harness_.branch(a, counting(20, 2)).commit_length(0);
  EXPECT_EQ(cache().length(a), 9);
  harness_.branch(a, counting(30, 2)).commit_length(2);
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4, 5, 10, 11, 12, 30, 31));
}

TEST_P(KvCacheTest, CommittingAPathKeepsItsRowsInOrder) {
  const SequenceId a = harness_.sequence(counting(0, 3));
  harness_.branch(a, counting(10, 9)).commit_path(Path{3, 5, 6, 10});
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 10, 12, 13, 17));
  harness_.branch(a, counting(20, 2)).commit_path({});
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 10, 12, 13, 17));
  EXPECT_EQ(cache().counts().fast_reorders, fast() ? 2 : 0);
  EXPECT_EQ(cache().counts().full_reorders, fast() ? 0 : 2);
  EXPECT_EQ(cache().counts().reorder_fallbacks, 0);
}

TEST_P(KvCacheTest, APathThatIsNotAscendingTakesTheFullReorderAndIsCountedAsAFallback) {
  const SequenceId a = harness_.sequence(counting(0, 5));
  const std::vector<Path> paths = {{6, 5}, {7, 6, 5}, {6, 5, 7}, {5, 7, 6}};
  const std::vector<Values> expected = {
      {0, 1, 2, 3, 4, 11, 10}, {0, 1, 2, 3, 4, 12, 11, 10}, {0, 1, 2, 3, 4, 11, 10, 12}, {0, 1, 2, 3, 4, 10, 12, 11}};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const SequenceId copy = harness_.sequence(counting(0, 5));
    harness_.branch(copy, counting(10, 3)).commit_path(paths[i]);
    EXPECT_EQ(read(copy), expected[i]);
    cache().release(copy);
  }
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(cache().counts().full_reorders, 4);
  EXPECT_EQ(cache().counts().reorder_fallbacks, fast() ? 4 : 0);
  EXPECT_EQ(cache().counts().fast_reorders, 0);
}

TEST_P(KvCacheTest, PathsOutOfRangeOrWithDuplicatesAreRefusedAndChangeNothing) {
  const SequenceId a = harness_.sequence(counting(0, 3));
  Branch branch = harness_.branch(a, counting(10, 4));
  EXPECT_THAT(
      [&] {
        branch.commit_path(Path{3, 7});
      },
      ThrowsMessage<std::logic_error>(HasSubstr("entry 1 of a path is position 7, expected one in [3, 7)")));
  EXPECT_THROW(branch.commit_path(Path{2, 3}), std::logic_error) << "a committed position";
  EXPECT_THROW(branch.commit_path(Path{-1}), std::logic_error);
  EXPECT_THAT(
      [&] {
        branch.commit_path(Path{4, 4});
      },
      ThrowsMessage<std::logic_error>(HasSubstr("position 4 is twice in a path")));
  ASSERT_TRUE(branch.open());
  EXPECT_EQ(harness_.read(branch.id(), 0, 7), (Values{0, 1, 2, 10, 11, 12, 13}));
  EXPECT_EQ(cache().counts().commits, 1) << "the one that made the sequence";
  branch.commit_path(Path{4});
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 11));
}

TEST_P(KvCacheTest, ADroppedBranchLeavesNoTrace) {
  const SequenceId a = harness_.sequence(counting(0, 6)), b = harness_.sequence(counting(20, 2));
  const std::vector<std::byte> before = harness_.bytes(a, 0, 6);
  const std::vector<std::int32_t> blocks(cache().blocks(a).begin(), cache().blocks(a).end());
  const std::int64_t free = cache().free_positions();
  { const Branch dropped = harness_.branch(a, counting(30, 11)); }
  harness_.branch(a, counting(50, 11)).rollback();
  Branch assigned_to = harness_.branch(a, counting(70, 3));
  assigned_to = harness_.branch(b, counting(80, 1));
  EXPECT_EQ(cache().counts().rollbacks, 3);
  assigned_to.rollback();
  EXPECT_EQ(harness_.bytes(a, 0, 6), before);
  EXPECT_TRUE(std::ranges::equal(cache().blocks(a), blocks));
  EXPECT_EQ(cache().free_positions(), free);
  EXPECT_EQ(cache().counts().rollbacks, 4);
}

TEST_P(KvCacheTest, ABranchIsOpenUntilItIsMovedFromCommittedOrRolledBack) {
  const SequenceId a = harness_.sequence(counting(0, 2));
  Branch first = harness_.branch(a, counting(10, 3));
  EXPECT_EQ(first.prefix(), 2);
  EXPECT_EQ(first.rows(), 3);
  Branch second = std::move(first);
  EXPECT_FALSE(first.open());
  EXPECT_THROW(first.commit_length(1), std::logic_error);
  second.commit_length(1);
  EXPECT_FALSE(second.open());
  EXPECT_THAT(read(a), ElementsAre(0, 1, 10));
}

TEST_P(KvCacheTest, TruncatingForgetsTheEnd) {
  const SequenceId a = harness_.sequence(counting(0, 11));
  cache().truncate(a, 11);
  cache().truncate(a, 5);
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4));
  harness_.branch(a, counting(20, 2)).commit_length(2);
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4, 20, 21));
  cache().truncate(a, 0);
  EXPECT_EQ(cache().free_positions(), 12 * cache().block_size());
}

// --- isolation ------------------------------------------------------------------------------------------------------

TEST_P(KvCacheTest, ABranchNeverChangesThePrefixOrAnotherBranch) {
  const SequenceId a = harness_.sequence(counting(0, 6)), b = harness_.sequence(counting(20, 7));
  const std::vector<std::byte> a_before = harness_.bytes(a, 0, 6), b_before = harness_.bytes(b, 0, 7);
  Branch on_a = harness_.branch(a, counting(100, 9));
  Branch on_b = harness_.branch(b, counting(200, 9));
  const std::vector<std::byte> rows_of_b = harness_.bytes(on_b.id(), 0, 16);
  harness_.write(on_a, 6, counting(300, 9));  // written again
  EXPECT_EQ(harness_.bytes(a, 0, 6), a_before);
  EXPECT_EQ(harness_.bytes(b, 0, 7), b_before);
  EXPECT_EQ(harness_.bytes(on_b.id(), 0, 16), rows_of_b);
  on_a.commit_path(Path{7, 9, 14});
  EXPECT_EQ(harness_.bytes(a, 0, 6), a_before);
  EXPECT_EQ(harness_.bytes(b, 0, 7), b_before);
  EXPECT_EQ(harness_.bytes(on_b.id(), 0, 16), rows_of_b);
  on_b.rollback();
  EXPECT_EQ(harness_.bytes(b, 0, 7), b_before);
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2, 3, 4, 5, 301, 303, 308));
}

// One branch per root-to-leaf path, as sequences of their own over the same tokens, and one branch with the whole tree.
TEST_P(KvCacheTest, ABranchPerPathAndABranchForTheTreeCommitTheSameBits) {
  const std::vector<Path> paths = {{4, 5, 7}, {4, 6}, {4, 5, 8, 9}};
  const Values tree = counting(100, 6);  // of positions 4 to 9
  for (const Path& path : paths) {
    const SequenceId whole = harness_.sequence(counting(0, 4)), alone = harness_.sequence(counting(0, 4));
    Branch tree_branch = harness_.branch(whole, tree);
    Values values;
    for (std::int32_t p : path) values.push_back(tree[static_cast<std::size_t>(p - 4)]);
    Branch path_branch = harness_.branch(alone, values);
    tree_branch.commit_path(path);
    path_branch.commit_length(path_branch.rows());
    const std::int64_t length = cache().length(whole);
    EXPECT_EQ(harness_.bytes(whole, 0, length), harness_.bytes(alone, 0, length));
    cache().release(whole);
    cache().release(alone);
  }
}

// --- bytes ----------------------------------------------------------------------------------------------------------

TEST_P(KvCacheTest, BranchingCopiesNothingWhenSharedAndThePrefixWhenReplicated) {
  const SequenceId a = harness_.sequence(counting(0, 7));
  EXPECT_EQ(cache().memory().slot_bytes(), 2 * 2 * 8 * 2);
  EXPECT_EQ(cache().counts().bytes_branched, 0) << "an empty prefix";
  const std::int64_t copies = harness_.device->kv_copies();
  const Branch branch = harness_.branch(a, counting(10, 3));
  EXPECT_EQ(cache().counts().bytes_branched, shared() ? 0 : 7 * cache().memory().slot_bytes());
  EXPECT_EQ(harness_.device->kv_copies() - copies, shared() ? 0 : 1) << "one call for all layers";
}

TEST_P(KvCacheTest, ACommitWritesOnlyWhatIsNotInPlace) {
  const SequenceId a = harness_.sequence(counting(0, 7));
  const auto bytes_of = [&](const std::function<void(Branch&)>& commit) {
    Branch branch = harness_.branch(a, counting(10, 6));
    const std::int64_t before = cache().counts().bytes_committed, copies = harness_.device->kv_copies();
    const std::int64_t uploads = harness_.device->uploads();
    commit(branch);
    cache().truncate(a, 7);
    const std::int64_t bytes = cache().counts().bytes_committed - before;
    EXPECT_EQ(harness_.device->kv_copies() - copies, bytes == 0 ? 0 : 1);
    EXPECT_EQ(harness_.device->uploads() - uploads, bytes == 0 ? 0 : 1);
    return bytes / cache().memory().slot_bytes();
  };
  EXPECT_EQ(bytes_of([](Branch& b) { b.commit_length(4); }), shared() ? 0 : 4);
  const bool in_place = shared() && fast();
  EXPECT_EQ(bytes_of([](Branch& b) { b.commit_path(Path{7, 8, 9}); }), in_place ? 0 : fast() ? 3 : 10);
  EXPECT_EQ(bytes_of([](Branch& b) { b.commit_path(Path{7, 8, 11, 12}); }), in_place ? 2 : fast() ? 4 : 11);
  EXPECT_EQ(bytes_of([](Branch& b) { b.commit_path(Path{8}); }), fast() ? 1 : 8);
}

TEST_P(KvCacheTest, ASharedFastCommitWritesAtMostTheAcceptedRows) {
  if (!shared() || !fast()) return;
  RandomValues random(41);
  const SequenceId a = cache().create();
  for (int round = 0; round < 60; ++round) {
    Branch branch = harness_.branch(a, counting(round * 10, random.between(1, 10)));
    Path path;
    for (std::int64_t p = branch.prefix(); p < branch.prefix() + branch.rows(); ++p)
      if (!random.one_in(3)) path.push_back(static_cast<std::int32_t>(p));
    const auto accepted = static_cast<std::int64_t>(path.size());
    const std::int64_t before = cache().counts().bytes_committed;
    branch.commit_path(path);
    EXPECT_LE(cache().counts().bytes_committed - before, accepted * cache().memory().slot_bytes());
    if (cache().length(a) > 20) cache().truncate(a, random.below(20));
  }
  EXPECT_EQ(cache().counts().reorder_fallbacks, 0);
}

// --- room -----------------------------------------------------------------------------------------------------------

TEST_P(KvCacheTest, AShortPoolRefusesABranchAndChangesNothing) {
  const std::int64_t size = cache().block_size();
  const SequenceId a = harness_.sequence(counting(0, 3)), b = cache().create();
  const std::int64_t calls = harness_.device->uploads();
  EXPECT_EQ(cache().free_positions(), 11 * size);
  EXPECT_FALSE(cache().begin(b, 11 * size + 1));
  EXPECT_FALSE(cache().begin(a, 12 * size - 2));
  EXPECT_FALSE(cache().begin(a, std::numeric_limits<std::int64_t>::max()));
  EXPECT_EQ(cache().free_positions(), 11 * size);
  EXPECT_EQ(harness_.device->uploads(), calls);
  EXPECT_EQ(cache().counts().branches, 1);
  const std::optional<Branch> fits = cache().begin(a, 12 * size - 3);
  EXPECT_TRUE(fits);
  EXPECT_EQ(cache().free_positions(), 0);
  EXPECT_FALSE(cache().begin(b, 1));
  EXPECT_THAT(read(a), ElementsAre(0, 1, 2));
}

TEST_P(KvCacheTest, ASequenceThatFillsTheCacheCommitsByAnyAscendingPathAndByAnyAtAllWithTheFullReorder) {
  const std::int64_t all = 12 * cache().block_size();
  const SequenceId a = harness_.sequence(counting(0, all - 10));
  Path turned;
  for (std::int64_t p = all - 1; p >= all - 10; --p) turned.push_back(static_cast<std::int32_t>(p));
  const Path ascending(turned.rbegin(), turned.rend());
  harness_.branch(a, counting(2000, 10)).commit_path(std::span(ascending).subspan(1));
  EXPECT_EQ(cache().length(a), all - 1);
  cache().truncate(a, all - 10);
  Branch branch = harness_.branch(a, counting(3000, 10));
  if (fast() && shared()) {
    EXPECT_THAT([&] { branch.commit_path(turned); },
                ThrowsMessage<DeviceError>(HasSubstr("needs more blocks than are free")));
    EXPECT_TRUE(branch.open());
    EXPECT_EQ(cache().counts().reorder_fallbacks, 0);
    branch.commit_length(10);
  } else if (!fast()) {
    branch.commit_path(turned);
    EXPECT_EQ(harness_.read(a, 0, 2), (Values{0, 1}));
    EXPECT_EQ(harness_.read(a, all - 2, all), (Values{3001, 3000}));
  }
}

// --- discarded slots ------------------------------------------------------------------------------------------------

// As on most devices. With many layers it would be most of what a commit does.
TEST(KvCacheDiscards, ADeviceThatDoesNotHearThemIsToldNone) {
  class Deaf final : public PassingDevice {
    using PassingDevice::PassingDevice;
    bool hears_discards() const override { return false; }
    void do_discard(View) override { ADD_FAILURE() << "a discard that nobody hears"; }
  };
  const auto reference = make_reference_device();
  Deaf device(*reference);
  KvCache cache(device, {.layers = 2, .kv_heads = 1, .head_size = 8, .block_size = 4}, 32);
  const SequenceId sequence = cache.create();
  cache.begin(sequence, 7)->commit_length(5);
  cache.begin(sequence, 3)->rollback();
  cache.truncate(sequence, 2);
  cache.release(sequence);
  cache.check_conservation();
}

// On a checked device, reading what nobody owns any more is a violation.
TEST_P(KvCacheTest, SlotsThatAreNoLongerUsedAreDiscarded) {
  if (GetParam().device == CacheDevice::plain) return;
  const auto expect_gone = [&](const std::vector<std::int32_t>& slots, std::string_view when) {
    for (std::int32_t slot : slots) {
      SCOPED_TRACE(testing::Message() << when << ", slot " << slot);
      const View memory = cache().memory().layer(1).v;
      std::vector<std::byte> bytes(16);
      expect_violation(
          [&] {
            harness_.device->download(memory.reshaped({memory.dim(0) * memory.dim(1), 2, 4}).rows(slot, 1), bytes);
          },
          {"download", "from", 0}, "R4");
    }
  };
  const auto slots_of = [&](SequenceId table, std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> slots;
    for (std::int64_t p = begin; p < end; ++p) slots.push_back(cache().slot(table, p));
    return slots;
  };
  const SequenceId a = harness_.sequence(counting(0, 6));
  Branch branch = harness_.branch(a, counting(10, 7));
  std::vector<std::int32_t> rows = slots_of(branch.id(), 6, 13);
  branch.rollback();
  expect_gone(rows, "rollback");
  branch = harness_.branch(a, counting(10, 7));
  rows = slots_of(branch.id(), 6, 13);
  branch.commit_path(Path{8, 12});
  for (std::int32_t kept : slots_of(a, 0, 8)) std::erase(rows, kept);
  EXPECT_GE(rows.size(), 5u);
  expect_gone(rows, "commit");
  rows = slots_of(a, 3, 8);
  cache().truncate(a, 3);
  expect_gone(rows, "truncate");
  rows = slots_of(a, 0, 3);
  cache().release(a);
  expect_gone(rows, "release");
}

// --- all of them agree ----------------------------------------------------------------------------------------------

// The same story told to two caches: what can be seen from outside is the same, bit by bit.
TEST_P(KvCacheTest, EverySettingCommitsTheBitsOfTheSharedFastCache) {
  CacheHarness other({.device = GetParam().device}, 12);
  RandomValues random(43);
  std::vector<SequenceId> sequences;
  for (int i = 0; i < 3; ++i) {
    sequences.push_back(cache().create());
    ASSERT_EQ(other.cache.create(), sequences.back());
  }
  for (std::int64_t round = 0; round < 40; ++round) {
    const SequenceId id = sequences[static_cast<std::size_t>(round % 3)];
    const Values rows = counting(round * 20, random.between(1, 9));
    Branch here = harness_.branch(id, rows), there = other.branch(id, rows);
    ASSERT_EQ(here.id(), there.id());
    Path path;
    for (std::int64_t p = here.prefix(); p < here.prefix() + here.rows(); ++p)
      if (!random.one_in(3)) path.push_back(static_cast<std::int32_t>(p));
    here.commit_path(path);
    there.commit_path(path);
    if (cache().length(id) > 10) {
      const std::int64_t length = random.below(6);
      cache().truncate(id, length);
      other.cache.truncate(id, length);
    }
    const std::int64_t length = cache().length(id);
    ASSERT_EQ(other.cache.length(id), length);
    ASSERT_EQ(harness_.bytes(id, 0, length), other.bytes(id, 0, length)) << "round " << round;
    ASSERT_EQ(cache().free_positions(), other.cache.free_positions());
    ASSERT_EQ(cache().counts().commits, other.cache.counts().commits);
  }
}

}  // namespace
}  // namespace espalier
