#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr KvShape kShape = {.layers = 2, .kv_heads = 1, .head_size = 4, .type = DType::f32, .block_size = 4};

TEST(KvCache, PositionsMapToDistinctSlotsOfTheSequencesOwnBlocks) {
  const auto device = make_reference_device();
  KvCache cache(*device, kShape, 40);
  const SequenceId a = cache.create(), b = cache.create();
  ASSERT_TRUE(cache.reserve(a, 9));
  ASSERT_TRUE(cache.reserve(b, 5));
  std::set<std::int32_t> slots;
  for (int p = 0; p < 9; ++p) slots.insert(cache.slot(a, p));
  for (int p = 0; p < 5; ++p) slots.insert(cache.slot(b, p));
  EXPECT_EQ(slots.size(), 14u);
  EXPECT_EQ(cache.slot(a, 6), cache.blocks(a)[1] * 4 + 2);
}

TEST(KvCache, AReservationThatDoesNotFitChangesNothing) {
  const auto device = make_reference_device();
  KvCache cache(*device, kShape, 8);
  const SequenceId a = cache.create();
  ASSERT_TRUE(cache.reserve(a, 5));
  EXPECT_FALSE(cache.reserve(a, 9));
  EXPECT_EQ(cache.blocks(a).size(), 2u);
  EXPECT_EQ(cache.free_positions(), 0);
  cache.set_length(a, 4);
  EXPECT_EQ(cache.free_positions(), 4);
  cache.release(a);
  EXPECT_EQ(cache.free_positions(), 8);
}

TEST(KvCache, AReleasedSequenceIsUnknown) {
  const auto device = make_reference_device();
  KvCache cache(*device, kShape, 8);
  const SequenceId a = cache.create();
  cache.release(a);
  EXPECT_THROW(cache.length(a), std::logic_error);
  EXPECT_THROW(cache.release(a), std::logic_error);
  EXPECT_NE(cache.create(), a);
}

TEST(KvCache, LengthCannotExceedWhatIsReserved) {
  const auto device = make_reference_device();
  KvCache cache(*device, kShape, 8);
  const SequenceId a = cache.create();
  ASSERT_TRUE(cache.reserve(a, 3));
  cache.set_length(a, 4);
  EXPECT_THROW(cache.set_length(a, 5), std::logic_error);
  EXPECT_THROW(cache.slot(a, 4), std::logic_error);
  EXPECT_THROW(cache.padding_slot(0), std::logic_error) << "no buckets, no padding slots";
}

// Random operations on the cache and on a map of lengths; no block may be owned twice or lost.
TEST(KvCache, RandomOperationsConserveBlocks) {
  const auto device = make_reference_device();
  const std::uint32_t seed = 20261115;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  KvCache cache(*device, kShape, 64);
  std::map<SequenceId, std::int64_t> lengths;
  for (int round = 0; round < 20000; ++round) {
    const auto pick = [&] { return std::next(lengths.begin(), static_cast<long>(random() % lengths.size())); };
    switch (random() % 4) {
      case 0:
        if (lengths.size() < 6) lengths.emplace(cache.create(), 0);
        break;
      case 1:
        if (!lengths.empty()) {
          const auto it = pick();
          cache.release(it->first);
          lengths.erase(it);
        }
        break;
      case 2:
        if (!lengths.empty()) {
          const auto it = pick();
          const std::int64_t wanted = it->second + static_cast<std::int64_t>(random() % 12);
          if (cache.reserve(it->first, wanted)) cache.set_length(it->first, it->second = wanted);
        }
        break;
      default:
        if (!lengths.empty()) {
          const auto it = pick();
          it->second = it->second == 0 ? 0 : static_cast<std::int64_t>(random()) % it->second;
          cache.set_length(it->first, it->second);
        }
    }
    std::set<std::int32_t> owned;
    std::size_t count = 0;
    for (const auto& [id, length] : lengths) {
      ASSERT_EQ(cache.length(id), length);
      for (std::int32_t block : cache.blocks(id)) owned.insert(block);
      count += cache.blocks(id).size();
      ASSERT_GE(static_cast<std::int64_t>(cache.blocks(id).size()) * 4, length);
    }
    ASSERT_EQ(owned.size(), count) << "a block has two owners";
    ASSERT_EQ(static_cast<std::int64_t>(count) * 4 + cache.free_positions(), 64);
  }
}

}  // namespace
}  // namespace espalier
