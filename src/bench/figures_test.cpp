#include "bench/figures.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Spread, TheMedianLiesInTheMiddleAndQuartilesAreInterpolated) {
  const Spread five = spread_of(std::vector<double>{5, 1, 4, 2, 3});
  EXPECT_EQ(five.median, 3);
  EXPECT_EQ(five.lower, 2);
  EXPECT_EQ(five.upper, 4);
  const Spread two = spread_of(std::vector<double>{1, 2});
  EXPECT_EQ(two.median, 1.5);
  EXPECT_EQ(two.lower, 1.25);
  EXPECT_EQ(two.upper, 1.75);
}

TEST(Spread, OneSampleIsAllThereIs) {
  const Spread one = spread_of(std::vector<double>{7});
  EXPECT_EQ(one.lower, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.upper, 7);
  EXPECT_THROW(spread_of({}), std::logic_error);
}

TEST(Figures, AreFoundByNameRowsAndContext) {
  std::vector<Figure> figures(2);
  figures[0].name = figures[1].name = "step";
  figures[1].rows = 4;
  EXPECT_EQ(find_figure(figures, "step", 4, 0), &figures[1]);
  EXPECT_EQ(find_figure(figures, "step", 4, 128), nullptr);
}

TEST(SampleCalls, LeaveTheFirstCallOutAndTakeTheMedianOfTheOthers) {
  int calls = 0;
  const double sample = sample_calls([&] {
    return ++calls == 1 ? 1000.0 : calls == 2 ? 50.0 : static_cast<double>(calls);
  });
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(sample, 4.0);  // of 50, 3 and 4
}

}  // namespace
}  // namespace espalier
