#include "cache/slot_mover.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "base/error.h"
#include "device/checked/checked_device.h"
#include "device/conformance/faulty_device.h"
#include "device/conformance/random_values.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

// Two layers of 512 slots, each holding its own number in K and the negative of it in V.
class SlotMoverTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::int64_t kSlots = 512, kWidth = 8;

  SlotMoverTest() {
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<float> numbers(kSlots);
      std::iota(numbers.begin(), numbers.end(), static_cast<float>(layer) * 1000);
      expected_.push_back(numbers);
      for (const float sign : {1.0f, -1.0f}) {
        memory_.push_back(device_.tensor(DType::f32, {4, 128, 1, kWidth}));
        std::vector<float> elements;
        for (float number : numbers) elements.insert(elements.end(), kWidth, sign * number);
        upload<float>(device_, elements, memory_.back());
      }
      layers_.push_back({memory_[memory_.size() - 2].view, memory_.back().view});
    }
  }

  void expect_moved() {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (std::size_t kv = 0; kv < 2; ++kv) {
        std::vector<float> elements(static_cast<std::size_t>(kSlots * kWidth));
        download<float>(device_, kv == 0 ? layers_[layer].k : layers_[layer].v, elements);
        for (std::size_t slot = 64; slot < static_cast<std::size_t>(kSlots); ++slot)
          ASSERT_EQ(elements[slot * kWidth], kv == 0 ? expected_[layer][slot] : -expected_[layer][slot]) << slot;
      }
  }
  // One pair after the other.
  void apply(const SlotMoves& moves) {
    for (std::vector<float>& numbers : expected_)
      for (std::size_t i = 0; i < moves.to.size(); ++i)
        numbers[static_cast<std::size_t>(moves.to[i])] = numbers[static_cast<std::size_t>(moves.from[i])];
  }

  FaultyDevice device_{make_checked_device(make_reference_device(),
                                           {.profile = GetParam() ? CheckedProfile::ascend : CheckedProfile::plain})};
  std::vector<Tensor> memory_;
  std::vector<KvViews> layers_;
  std::vector<std::vector<float>> expected_;  // [layer][slot]
  SlotMover mover_{device_, 300};
};

INSTANTIATE_TEST_SUITE_P(Devices, SlotMoverTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "with_buckets" : "without_buckets"; });

TEST_P(SlotMoverTest, ListsOfAnyLengthMoveWithOneUpload) {
  RandomValues random(5);
  std::int64_t uploads = device_.uploads(), copies = 0;
  for (const std::int64_t n : {1, 2, 7, 8, 9, 31, 63, 64, 65, 128, 130, 200}) {
    SlotMoves moves;
    for (std::int32_t i = 0; i < n; ++i)
      moves.add(static_cast<std::int32_t>(random.between(64, 290)), 300 + (i * 7 + 3) % 211);
    std::int64_t done = 0;
    mover_.move(moves, layers_, done);
    apply(moves);
    expect_moved();
    EXPECT_EQ(device_.uploads(), ++uploads);
    EXPECT_EQ(done, GetParam() ? (n + 63) / 64 : 1) << "calls, each for all layers";
    EXPECT_EQ(device_.kv_copies(), copies += done);
  }
}

TEST_P(SlotMoverTest, AShiftDownOverSeveralCallsReadsNothingThatItHasWritten) {
  SlotMoves moves;
  for (std::int32_t i = 0; i < 300; ++i) moves.add(64 + i + (i < 100 ? 1 : 5), 64 + i);
  std::int64_t done = 0;
  mover_.move(moves, layers_, done);
  apply(moves);
  expect_moved();
}

TEST_P(SlotMoverTest, NothingToMoveIsNoCall) {
  const std::int64_t uploads = device_.uploads();
  std::int64_t done = 0;
  mover_.move({}, layers_, done);
  EXPECT_EQ(device_.uploads(), uploads);
  EXPECT_EQ(device_.kv_copies(), 0);
}

TEST_P(SlotMoverTest, AnInterruptedMoveGoesOnWhereItStopped) {
  SlotMoves moves;
  for (std::int32_t i = 0; i < 150; ++i) moves.add(66 + i, 64 + i);  // twice the same call would shift twice
  std::int64_t done = 0;
  int faults = 0;
  for (std::int64_t n = 1;; ++n) {
    device_.fail_at(n);
    try {
      mover_.move(moves, layers_, done);
      break;
    } catch (const DeviceError&) {
      ++faults;
    }
  }
  device_.never_fail();
  EXPECT_GE(faults, 2);
  apply(moves);
  expect_moved();
}

TEST_P(SlotMoverTest, AListLongerThanItsLimitIsRefused) {
  SlotMoves moves;
  for (std::int32_t i = 0; i < 400; ++i) moves.add(0, i);
  std::int64_t done = 0;
  EXPECT_THROW(mover_.move(moves, layers_, done), std::logic_error);
}

}  // namespace
}  // namespace espalier
