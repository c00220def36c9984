// kv_copy on every device and KV type: slots move as they are stored, in every layer, whatever the lists do to each
// other.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "device/conformance/conformance.h"

namespace espalier {
namespace {

struct Moves {
  std::string_view name;
  std::vector<std::int32_t> from;
  std::vector<std::int32_t> to;
};

struct KvCopyShape {
  std::int64_t blocks = 0;
  std::int64_t block_size = 0;
  std::int64_t kv_heads = 0;
  std::int64_t dim = 0;

  std::int64_t slots() const { return blocks * block_size; }
  std::int64_t width() const { return kv_heads * dim; }
};

std::vector<std::int32_t> first(std::vector<std::int32_t> list, std::int64_t n) {
  list.resize(static_cast<std::size_t>(n));
  return list;
}

std::vector<std::int32_t> counting_from(std::int32_t start, std::int64_t n) {
  std::vector<std::int32_t> list(static_cast<std::size_t>(n));
  std::iota(list.begin(), list.end(), start);
  return list;
}

// Lists of n < slots pairs.
std::vector<Moves> all_moves(RandomValues& random, std::int64_t slots, std::int64_t n) {
  const std::vector<std::int32_t> some = first(random.permutation(slots), n);
  std::vector<std::int32_t> shuffled;
  for (std::int32_t i : random.permutation(n)) shuffled.push_back(some[static_cast<std::size_t>(i)]);
  std::vector<std::int32_t> repeated;
  for (std::int64_t i = 0; i < n; ++i) repeated.push_back(some[static_cast<std::size_t>(random.below(1 + n / 2))]);
  return {{"from anywhere to anywhere", first(random.permutation(slots), n), some},
          {"a permutation", shuffled, some},
          {"slots read twice, some of them written", repeated, first(random.permutation(slots), n)},
          {"one down", counting_from(1, n), counting_from(0, n)},
          {"one up", counting_from(0, n), counting_from(1, n)},
          {"in place", some, some}};
}

class KvCopyConformance : public testing::TestWithParam<std::tuple<DeviceUnderTest, DType>> {
 protected:
  DType type() const { return std::get<1>(GetParam()); }

  std::vector<KvCopyShape> shapes() const {
    if (test_.has_buckets()) return {{2, 128, 1, 8}, {1, 256, 3, 20}};
    return {{67, 1, 1, 1}, {9, 8, 3, 5}, {2, 128, 2, 31}};
  }

  // Any bits will do, NaN and infinity among them: nothing is computed.
  std::vector<std::uint8_t> random_slots(const KvCopyShape& shape) {
    return random_.bytes(shape.slots() * bytes_per_slot(shape));
  }
  std::int64_t bytes_per_slot(const KvCopyShape& shape) const { return row_bytes(type(), shape.width()); }

  std::vector<std::uint8_t> moved(const std::vector<std::uint8_t>& before, const KvCopyShape& shape,
                                  const Moves& moves) const {
    std::vector<std::uint8_t> after = before;
    const std::int64_t bytes = bytes_per_slot(shape);
    for (std::size_t i = 0; i < moves.to.size(); ++i)
      std::copy_n(before.begin() + moves.from[i] * bytes, bytes, after.begin() + moves.to[i] * bytes);
    return after;
  }

  void expect_moved(const KvCopyShape& shape, const Moves& moves, Placement placement, int layers) {
    Device& device = test_.tested();
    std::vector<std::vector<std::uint8_t>> before;  // K and V of every layer
    std::vector<PlacedTensor> memories;
    for (int i = 0; i < 2 * layers; ++i) {
      before.push_back(random_slots(shape));
      memories.emplace_back(device, type(), shape.slots(), shape.width(), placement).fill(before.back());
    }
    const auto as_kv = [&](const PlacedTensor& tensor) {
      return tensor.view().reshaped({shape.blocks, shape.block_size, shape.kv_heads, shape.dim});
    };
    std::vector<KvViews> views;
    for (std::size_t i = 0; i < memories.size(); i += 2) views.push_back({as_kv(memories[i]), as_kv(memories[i + 1])});
    const auto n = static_cast<std::int64_t>(moves.to.size());
    const PlacedTensor from = place(device, DType::i32, moves.from, 1, placement);
    const PlacedTensor to = place(device, DType::i32, moves.to, 1, placement);
    device.kv_copy(views, from.view().reshaped({n}), to.view().reshaped({n}));
    for (std::size_t i = 0; i < memories.size(); ++i)
      EXPECT_EQ(stored(memories[i]), moved(before[i], shape, moves))
          << (i % 2 == 0 ? "K" : "V") << " of layer " << i / 2;
  }
  std::vector<std::uint8_t> stored(const PlacedTensor& memory) const {
    const auto bytes = [](const auto& values) {
      const auto* const begin = reinterpret_cast<const std::uint8_t*>(values.data());
      return std::vector<std::uint8_t>(begin, begin + values.size() * sizeof values[0]);
    };
    return type() == DType::f32 ? bytes(memory.values<std::uint32_t>()) : bytes(memory.values<std::uint16_t>());
  }

  DeviceTest test_{std::get<0>(GetParam())};
  RandomValues random_{17};
};

INSTANTIATE_TEST_SUITE_P(Devices, KvCopyConformance,
                         testing::Combine(testing::ValuesIn(devices_under_test()),
                                          testing::Values(DType::f16, DType::bf16, DType::f32)),
                         [](const testing::TestParamInfo<std::tuple<DeviceUnderTest, DType>>& info) {
                           return std::get<0>(info.param).name + "_" + std::string(name(std::get<1>(info.param)));
                         });

TEST_P(KvCopyConformance, EverythingIsReadBeforeAnythingIsWritten) {
  const std::vector<Placement> others = test_.placements(false);
  std::size_t calls = 0;
  for (const KvCopyShape& shape : shapes())
    for (std::int64_t n : test_.row_counts())
      for (const Moves& moves : all_moves(random_, shape.slots(), n)) {
        SCOPED_TRACE(testing::Message() << shape.slots() << " slots, " << n << " moves: " << moves.name);
        expect_moved(shape, moves, calls++ % 2 == 0 ? Placement{} : others[calls % others.size()], 1);
      }
}

TEST_P(KvCopyConformance, EveryLayerMovesByTheSameLists) {
  const std::int64_t n = test_.row_count(7);
  for (const KvCopyShape& shape : shapes())
    for (const Moves& moves : all_moves(random_, shape.slots(), n)) {
      SCOPED_TRACE(testing::Message() << shape.slots() << " slots, " << n << " moves: " << moves.name);
      expect_moved(shape, moves, {}, 3);
    }
}

TEST_P(KvCopyConformance, AlsoMoreLayersThanOneLaunchTakes) {
  const std::int64_t n = test_.row_count(7);
  const KvCopyShape shape = shapes().front();
  expect_moved(shape, all_moves(random_, shape.slots(), n).front(), {}, 70);
}

}  // namespace
}  // namespace espalier
