#include "decode/row_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "device/checked/checked_device.h"
#include "device/conformance/counting_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kRows = 12, kWidth = 64;

class RowCopiesTest : public ::testing::Test {
 protected:
  // Row r of it is full of first + r.
  Tensor rows_from(float first, std::int64_t rows = kRows) {
    Tensor tensor = device_.tensor(DType::f32, {rows, kWidth});
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * kWidth; ++i) values.push_back(first + static_cast<float>(i / kWidth));
    upload<float>(device_, values, tensor);
    return tensor;
  }
  std::vector<float> first_column(const Tensor& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.view.elements())), column;
    download<float>(device_, tensor, values);
    for (std::size_t i = 0; i < values.size(); i += kWidth) column.push_back(values[i]);
    return column;
  }
  void note(const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs) {
    for (const auto& [row, place] : pairs) copies_.note(from_, row, to_, place);
  }
  // What make() asks of the device.
  CallCounts made() {
    const CallCounts before = device_.counts();
    copies_.make();
    return device_.counts() - before;
  }

  CountingDevice device_{make_reference_device()};
  Tensor from_ = rows_from(100), to_ = rows_from(0, 6);
  RowCopies copies_{device_, 8};
};

TEST_F(RowCopiesTest, RowsSideBySideAreOneOpAndNoUpload) {
  note({{4, 1}, {5, 2}, {6, 3}});
  const CallCounts counts = made();
  EXPECT_EQ(counts.ops, 1);
  EXPECT_EQ(counts.uploads, 0);
  EXPECT_THAT(first_column(to_), ElementsAre(0, 104, 105, 106, 4, 5));
  EXPECT_EQ(made().ops, 0) << "they are made";
}

TEST_F(RowCopiesTest, PlacesApartAreAnOpEachAndNoUpload) {
  note({{4, 1}, {5, 3}, {6, 4}, {9, 0}});
  const CallCounts counts = made();
  EXPECT_EQ(counts.ops, 3);
  EXPECT_EQ(counts.uploads, 0);
  EXPECT_THAT(first_column(to_), ElementsAre(109, 104, 2, 105, 106, 5));
}

TEST_F(RowCopiesTest, RowsInAnotherOrderAreUploadedAtOnce) {
  note({{4, 1}, {3, 2}, {8, 4}, {8, 5}});
  const CallCounts counts = made();
  EXPECT_EQ(counts.ops, 2);
  EXPECT_EQ(counts.uploads, 1);
  EXPECT_THAT(first_column(to_), ElementsAre(0, 104, 103, 3, 108, 108));
}

TEST_F(RowCopiesTest, TheLastRowThatIsNotedForAPlaceStays) {
  note({{4, 1}, {5, 2}, {7, 1}});
  made();
  EXPECT_THAT(first_column(to_), ElementsAre(0, 107, 105, 3, 4, 5));
}

TEST_F(RowCopiesTest, RowsOfAnotherTensorAndThoseForWhichThereIsNoRoomAreMadeInTheirOrder) {
  const Tensor other = rows_from(200);
  note({{4, 1}});
  copies_.note(other, 0, to_, 1);
  copies_.note(other, 1, to_, 2);
  note({{11, 2}});
  for (std::int32_t i = 0; i < 20; ++i) copies_.note(from_, i % 12, to_, 5);
  made();
  EXPECT_THAT(first_column(to_), ElementsAre(0, 200, 111, 3, 4, 107));
}

TEST_F(RowCopiesTest, AreThoseOfALoopWhateverIsNoted) {
  std::mt19937 random(11);
  std::vector<float> expected = first_column(to_);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 5; ++i) {
      const auto row = static_cast<std::int32_t>(random() % 12), place = static_cast<std::int32_t>(random() % 6);
      copies_.note(from_, row, to_, place);
      expected[static_cast<std::size_t>(place)] = static_cast<float>(100 + row);
    }
    copies_.make();
    ASSERT_EQ(first_column(to_), expected) << "seed 11, round " << round;
  }
}

// Its lists are as long as a bucket, or shorter than the smallest.
TEST(RowCopiesOnADeviceWithBuckets, CopyARowForItself) {
  const auto device = make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend});
  const Tensor from = device->tensor(DType::f32, {4, kWidth}), to = device->tensor(DType::f32, {4, kWidth});
  upload<float>(*device, std::vector<float>(4 * kWidth, 7), from);
  RowCopies copies(*device, 4);
  for (std::int32_t i = 0; i < 4; ++i) copies.note(from, i, to, i);
  EXPECT_NO_THROW(copies.make());
  std::vector<float> values(4 * kWidth);
  download<float>(*device, to, values);
  EXPECT_EQ(values, std::vector<float>(4 * kWidth, 7));
}

}  // namespace
}  // namespace espalier
