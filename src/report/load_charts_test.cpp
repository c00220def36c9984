#include "report/load_charts.h"

#include <gmock/gmock.h>

#include "bench/load/testing/measured_load.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LoadCharts, AreOfSpeedFirstTokensAndGaps) {
  const std::vector<Chart> charts = load_charts(load_of_two_servers());
  ASSERT_EQ(charts.size(), 6u);
  for (const Chart& chart : charts) {
    ASSERT_EQ(chart.series.size(), 2u) << chart.id;
    EXPECT_EQ(chart.series[0].name, "[1] espalier, draft none");
  }
  const std::string svg = charts_document(charts);
  EXPECT_THAT(svg, HasSubstr("Time to first token"));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
}

TEST(LoadCharts, InterruptsHaveAChartOfTheirOwn) {
  const std::vector<Chart> charts = load_charts(interrupted_load());
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(charts[0].id, "interrupts-1");
}

TEST(LoadCharts, ALoadWithoutAnAnswerHasNone) {
  LoadResult result = load_of_two_servers();
  for (ShapeResult& shape : result.shapes)
    for (LoadFigures& figures : shape.figures) figures = {.requests = 4, .failed = 4};
  EXPECT_TRUE(load_charts(result).empty());
}

}  // namespace
}  // namespace espalier
