#include "base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace espalier {
namespace {

// Distance in units of the last place of the expected float.
double ulps(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  const float next = std::nextafter(std::fabs(rounded), std::numeric_limits<float>::infinity());
  return std::fabs(got - expected) / (double{next} - double{std::fabs(rounded)});
}

TEST(Math, ExpOfFloatIsWithinTwoUlps) {
  double worst = 0;
  for (float x = -86.99f; x < 88.7f; x += 0.0007f) worst = std::max(worst, ulps(exp_f32(x), std::exp(double{x})));
  EXPECT_LT(worst, 2.0);
}

TEST(Math, ExpOfFloatHasTheEdgesOfTheContract) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(-87.01f)), 0u) << "plus zero, not minus zero";
  EXPECT_EQ(exp_f32(-infinity), 0.0f);
  EXPECT_GT(exp_f32(-87.0f), 0.0f);
  EXPECT_TRUE(std::isfinite(exp_f32(88.72283f)));
  EXPECT_EQ(exp_f32(88.7229f), infinity);
  EXPECT_EQ(exp_f32(infinity), infinity);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, SiluFollowsItsFormulaOutToTheEnds) {
  EXPECT_EQ(silu_f32(0.0f), 0.0f);
  EXPECT_EQ(silu_f32(100.0f), 100.0f);
  EXPECT_EQ(silu_f32(-100.0f), 0.0f);
  for (float x = -20; x < 20; x += 0.01f)
    EXPECT_NEAR(silu_f32(x), x / (1 + std::exp(-double{x})), 1e-6 * std::fabs(x) + 1e-9);
}

TEST(Math, DoubleFunctionsAgreeWithLibmToTheLastBits) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int i = 0; i < 200000; ++i) {
    const double x = (unit(random) - 0.5) * 1400;
    EXPECT_NEAR(exp_f64(x) / std::exp(x), 1.0, 4e-16) << x;
    const double y = std::exp((unit(random) - 0.5) * 200);
    EXPECT_NEAR(log_f64(y), std::log(y), 4e-16 * std::max(1.0, std::fabs(std::log(y)))) << y;
    const double angle = (unit(random) - 0.5) * 2e6;
    EXPECT_NEAR(sin_f64(angle), std::sin(angle), 3e-16) << angle;
    EXPECT_NEAR(cos_f64(angle), std::cos(angle), 3e-16) << angle;
  }
  EXPECT_NEAR(pow_f64(16e6, -0.75) / std::pow(16e6, -0.75), 1.0, 1e-14);
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(log_f64(1.0), 0.0);
  EXPECT_EQ(log_f64(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_NEAR(log_f64(1e-310), std::log(1e-310), 1e-12);
}

// A change here changes the text that users get for a seed: it is a change of the contract.
TEST(Math, SelectedBitPatternsNeverChange) {
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(1.0f)), std::bit_cast<std::uint32_t>(2.71828175f));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(exp_f32(-0.5f)), std::bit_cast<std::uint32_t>(0.606530666f));
}

}  // namespace
}  // namespace espalier
