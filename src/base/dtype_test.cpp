#include "base/dtype.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace espalier {
namespace {

TEST(DType, NamesRoundTripInEitherCase) {
  for (DType type : kLinearTypes) EXPECT_EQ(parse_dtype(name(type)), type);
  EXPECT_EQ(parse_dtype("Q4_K"), DType::q4_k);
  EXPECT_EQ(parse_dtype("q4_9"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(DType, RowBytesCountWholeBlocks) {
  EXPECT_EQ(row_bytes(DType::f32, 7), 28);
  EXPECT_EQ(row_bytes(DType::q4_1, 64), 40);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420);
  EXPECT_THROW(row_bytes(DType::q4_0, 33), std::logic_error);
}

}  // namespace
}  // namespace espalier
