#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace espalier {
namespace {

TEST(Float16, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), half) << "half bits " << bits;
    }
  }
}

TEST(Float16, EveryBfloatSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = static_cast<std::uint16_t>(bits);
    if (!std::isnan(bf16_to_f32(value))) {
      ASSERT_EQ(f32_to_bf16(bf16_to_f32(value)), value);
    }
  }
}

// Halfway between neighbouring halves goes to the even one; just off halfway goes to the nearer one.
TEST(Float16, RoundsToNearestEven) {
  for (std::uint16_t half = 0; half < 0x7bff; ++half) {
    const float low = f16_to_f32(half);
    const float high = f16_to_f32(static_cast<std::uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    const std::uint16_t even = half % 2 == 0 ? half : static_cast<std::uint16_t>(half + 1);
    ASSERT_EQ(f32_to_f16(middle), even) << "above half bits " << half;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 1e9f)), half + 1);
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000);
  }
}

TEST(Float16, OverflowGoesToInfinityAndSmallGoesToZero) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Bfloat16, RoundsToNearestEven) {
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    const std::uint16_t down = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    const std::uint16_t up = static_cast<std::uint16_t>(down + 1);
    const double below = std::fabs(double{value} - double{bf16_to_f32(down)});
    const double above = std::fabs(double{bf16_to_f32(up)} - double{value});
    if (!std::isfinite(bf16_to_f32(up))) continue;
    const std::uint16_t expected = below < above || (below == above && down % 2 == 0) ? down : up;
    ASSERT_EQ(f32_to_bf16(value), expected) << value;
  }
}

}  // namespace
}  // namespace espalier
