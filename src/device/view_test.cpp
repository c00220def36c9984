#include "device/view.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <type_traits>
#include <vector>

namespace espalier {
namespace {

class ViewTest : public testing::Test {
 protected:
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 * 6 * 10);
  View matrix_{memory_.data(), DType::f32, {6, 10}};
};

TEST_F(ViewTest, AFreshViewIsDense) {
  EXPECT_EQ(matrix_.rank(), 2);
  EXPECT_EQ(matrix_.elements(), 60);
  EXPECT_EQ(matrix_.row_stride(), 10);
  EXPECT_EQ(matrix_.bytes_spanned(), 240);
  EXPECT_TRUE(matrix_.dense());
  EXPECT_EQ(matrix_.describe(), "f32 [6, 10]");
}

TEST_F(ViewTest, ADefaultViewIsEmpty) {
  EXPECT_TRUE(View().empty());
  EXPECT_EQ(View().bytes_spanned(), 0);
}

TEST_F(ViewTest, RowsMoveTheAddressAndStayDense) {
  const View rows = matrix_.rows(2, 3);
  EXPECT_EQ(rows.data() - matrix_.data(), 80);
  EXPECT_EQ(rows.dim(0), 3);
  EXPECT_TRUE(rows.dense());
  EXPECT_THROW(matrix_.rows(4, 3), std::logic_error);
  EXPECT_THROW(matrix_.rows(-1, 1), std::logic_error);
}

TEST_F(ViewTest, ColumnsKeepTheStride) {
  const View columns = matrix_.columns(3, 4);
  EXPECT_EQ(columns.data() - matrix_.data(), 12);
  EXPECT_EQ(columns.row_stride(), 10);
  EXPECT_FALSE(columns.dense());
  EXPECT_EQ(columns.bytes_spanned(), (5 * 10 + 4) * 4);
  EXPECT_EQ(columns.describe(), "f32 [6, 4] row stride 10");
  EXPECT_TRUE(columns.rows(1, 1).dense()) << "one row has no gaps";
  EXPECT_EQ(columns.rows(2, 2).data() - columns.data(), 80);
  EXPECT_THROW(matrix_.columns(8, 3), std::logic_error);
}

TEST_F(ViewTest, ReshapingKeepsElementsAndNeedsADenseViewUnlessRowsStay) {
  const View heads = matrix_.columns(0, 6).reshaped({6, 2, 3});
  EXPECT_EQ(heads.row_stride(), 10);
  EXPECT_EQ(heads.row_elements(), 6);
  EXPECT_EQ(matrix_.reshaped({3, 2, 10}).row_stride(), 20);
  EXPECT_THROW(matrix_.columns(0, 6).reshaped({12, 3}), std::logic_error);
  EXPECT_THROW(matrix_.reshaped({6, 9}), std::logic_error);
}

TEST_F(ViewTest, AViewConvertsToAConstViewAndNeverBack) {
  const ConstView constant = matrix_.columns(2, 5);
  EXPECT_EQ(constant.data(), matrix_.data() + 8);
  EXPECT_EQ(constant.row_stride(), 10);
  static_assert(std::is_convertible_v<View, ConstView>);
  static_assert(!std::is_convertible_v<ConstView, View>);
}

TEST_F(ViewTest, BlockFormatsAndImpossibleShapesAreRefused) {
  EXPECT_THROW(View(nullptr, DType::q8_0, {32}), std::logic_error);
  EXPECT_THROW(View(nullptr, DType::f32, {1, 1, 1, 1, 1}), std::logic_error);
  EXPECT_THROW(View(nullptr, DType::f32, {-1}), std::logic_error);
  EXPECT_EQ(View(nullptr, DType::f32, {0, 4}).bytes_spanned(), 0);
}

}  // namespace
}  // namespace espalier
