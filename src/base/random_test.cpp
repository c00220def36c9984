#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace espalier {
namespace {

TEST(Uniform, DependsOnSeedAndPositionOnly) {
  EXPECT_EQ(uniform(1, 2), uniform(1, 2));
  EXPECT_NE(uniform(1, 2), uniform(2, 1));
  EXPECT_NE(uniform(1, 2), uniform(1, 3));
}

TEST(Uniform, FillsTheUnitIntervalEvenlyForNeighbouringSeedsAndPositions) {
  constexpr int kCells = 64;
  constexpr int kDraws = 1 << 16;
  for (int by_seed = 0; by_seed < 2; ++by_seed) {
    std::vector<int> count(kCells);
    for (int i = 0; i < kDraws; ++i) {
      const double u = by_seed ? uniform(static_cast<std::uint64_t>(i), 5) : uniform(5, static_cast<std::uint64_t>(i));
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++count[static_cast<std::size_t>(u * kCells)];
    }
    double chi_squared = 0;
    const double expected = double{kDraws} / kCells;
    for (int n : count) chi_squared += (n - expected) * (n - expected) / expected;
    EXPECT_LT(chi_squared, 63 + 6 * std::sqrt(2.0 * 63)) << "63 degrees of freedom, six deviations";
  }
}

// A change here changes the text that users get for a seed.
TEST(Uniform, SelectedValuesNeverChange) {
  EXPECT_EQ(mix64(1), 0x5692161d100b05e5ull);
  EXPECT_EQ(uniform(7, 40), 0x1.a1ba66e7286d8p-1);
}

}  // namespace
}  // namespace espalier
