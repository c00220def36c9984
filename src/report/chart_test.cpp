#include "report/chart.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "report/chart_scale.h"
#include "report/histogram.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Chart chart_of(ChartForm form) {
  Chart chart{.id = "speed", .title = "Speed-up by nodes", .form = form};
  chart.x = {.title = "nodes", .categories = {"16", "32"}};
  chart.y = {.title = "speed-up"};
  chart.series = {{.name = "eagle3", .points = {{.x = 0, .y = 1, .interval = Interval{0.5, 1.5}}, {.x = 1, .y = 2}}},
                  {.name = "paper", .points = {{.x = 0, .y = 1.5}, {.x = 1, .y = 1.2}}, .paper = true}};
  return chart;
}

// All numbers behind an attribute's name.
std::vector<double> attributes(const std::string& svg, const std::string& name) {
  std::vector<double> numbers;
  const std::regex pattern(" " + name + "=\"(-?[0-9.]+)\"");
  for (auto found = std::sregex_iterator(svg.begin(), svg.end(), pattern); found != std::sregex_iterator(); ++found)
    numbers.push_back(std::stod((*found)[1]));
  return numbers;
}

double view_height(const std::string& svg) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(svg, found, std::regex("viewBox=\"0 0 400 ([0-9]+)\"")));
  return std::stod(found[1]);
}

TEST(ChartScale, TicksAreRoundAndEncloseTheValues) {
  EXPECT_THAT(round_ticks(0, 1.9, 5), ElementsAre(0, 0.5, 1, 1.5, 2));
  EXPECT_THAT(round_ticks(3, 7, 4), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(round_ticks(0, 0, 4), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(round_ticks(1, 0, 4), ElementsAre(0, 1));
  EXPECT_THAT(round_ticks(NAN, 1, 4), ElementsAre(0, 1));
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-6, 6), part(0, 1);
  for (int i = 0; i < 2000; ++i) {
    const double high = std::pow(10, exponent(random)), low = high * (2 * part(random) - 1);
    const std::vector<double> ticks = round_ticks(low, high, 5);
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    ASSERT_LE(ticks.size(), 9u) << low << " " << high;
    ASSERT_LE(ticks.front(), low + 1e-9 * std::abs(low)) << high;
    ASSERT_GE(ticks.back(), high * (1 - 1e-9)) << low;
  }
}

TEST(ChartScale, TicksAreWrittenWithTheDecimalsTheyNeed) {
  EXPECT_EQ(tick_text(0.5, 0.5, false), "0.5");
  EXPECT_EQ(tick_text(200, 50, false), "200");
  EXPECT_EQ(tick_text(0.25, 0.05, true), "25 %");
  EXPECT_EQ(tick_text(-0.0, 1, false), "0");
}

TEST(Chart, EveryMarkLiesInsideTheImage) {
  for (const ChartForm form : {ChartForm::line, ChartForm::rows, ChartForm::histogram, ChartForm::scatter}) {
    Chart chart = chart_of(form);
    if (form == ChartForm::histogram || form == ChartForm::scatter) chart.x.categories.clear();
    chart.bin_width = form == ChartForm::histogram ? 1 : 0;
    const std::string svg = chart_svg(chart);
    const double height = view_height(svg);
    for (const double x : attributes(svg, "x")) EXPECT_TRUE(x >= 0 && x <= 400) << name(form) << " " << x;
    for (const double y : attributes(svg, "y")) EXPECT_TRUE(y >= 0 && y <= height) << name(form) << " " << y;
  }
}

TEST(Chart, BarsAreAsLongAsTheirValues) {
  const std::vector<double> widths = attributes(chart_svg(chart_of(ChartForm::rows)), "width");
  // two samples of the legend, then 16: 1 and 1.5, then 32: 2 and 1.2
  ASSERT_EQ(widths.size(), 6u);
  EXPECT_NEAR(widths[4] / widths[2], 2, 0.01);
  EXPECT_NEAR(widths[3] / widths[2], 1.5, 0.01);
  EXPECT_NEAR(widths[5] / widths[2], 1.2, 0.01);
}

TEST(Chart, SeriesDifferInMoreThanColour) {
  Chart chart = chart_of(ChartForm::line);
  chart.series = {{.name = "a", .points = {{.x = 0, .y = 1}, {.x = 1, .y = 1}}},
                  {.name = "b", .points = {{.x = 0, .y = 2}, {.x = 1, .y = 2}}}};
  const std::string svg = chart_svg(chart);
  EXPECT_THAT(svg, HasSubstr("class=\"line s0\" d="));
  EXPECT_THAT(svg, HasSubstr("class=\"line s1\" stroke-dasharray="));
  EXPECT_THAT(svg, HasSubstr("a4 4 0 1 0"));  // a circle
  EXPECT_THAT(svg, HasSubstr("h7v7h-7z"));    // a square
}

TEST(Chart, BarsOfNeighboursDifferInGrey) {
  Chart chart = chart_of(ChartForm::rows);
  chart.series[1].paper = false;
  const std::string svg = chart_svg(chart);
  EXPECT_THAT(svg, HasSubstr("class=\"bar s0\" fill-opacity=\"0.85\""));
  EXPECT_THAT(svg, HasSubstr("class=\"bar s1\" fill-opacity=\"0.3\""));
}

TEST(Chart, TextOfOthersIsEscaped) {
  Chart chart = chart_of(ChartForm::line);
  chart.title = "</svg><script>\x01";
  chart.series[0].name = "\"><b>";
  chart.x.categories[0] = "<i>&\xff";
  for (const ChartForm form : {ChartForm::line, ChartForm::rows}) {
    chart.form = form;
    const std::string svg = chart_document(chart);
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_THAT(svg, Not(HasSubstr("<b>")));
    EXPECT_THAT(svg, Not(HasSubstr("<i>")));
    EXPECT_THAT(svg, Not(HasSubstr("\x01")));
  }
}

TEST(Chart, ASinglePointAndEqualPointsCanBeDrawn) {
  Chart chart{.id = "one", .title = "one", .form = ChartForm::scatter};
  chart.series = {{.name = "a", .points = {{.x = 3, .y = 0}}}};
  EXPECT_THAT(chart_svg(chart), Not(HasSubstr("nan")));
  chart.series[0].points.push_back({.x = 3, .y = 0});
  EXPECT_THAT(chart_svg(chart), Not(HasSubstr("inf")));
}

TEST(Chart, FilesKeepTheNumbersAsTheyAre) {
  Chart chart = chart_of(ChartForm::line);
  chart.series[0].points[0].y = 1.0 / 3;
  EXPECT_THAT(to_csv(chart), HasSubstr("eagle3,16,0.3333333333333333,0.5,1.5\n"));
  EXPECT_EQ(to_json(chart)["series"][0]["points"][0]["y"], 1.0 / 3);
  EXPECT_EQ(to_json(chart)["series"][1]["paper"], true);
}

TEST(Histogram, SharesOfARunSumToOne) {
  std::mt19937 random(3);
  std::normal_distribution<double> lengths(200, 60);
  NamedSamples a{"a", {}}, b{"b", {1, 2, 1000}};
  for (int i = 0; i < 237; ++i) a.second.push_back(lengths(random));
  const Chart chart = histogram_of("lengths", {.title = "tokens"}, {a, b, {"none", {}}});
  ASSERT_EQ(chart.series.size(), 2u);
  for (const ChartSeries& series : chart.series) {
    double sum = 0;
    for (const ChartPoint& point : series.points) sum += point.y;
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

TEST(Histogram, OneSeriesStandsForRunsWithTheSameSamples) {
  const Chart chart = histogram_of("lengths", {.title = "tokens"}, {{"a", {1, 2}}, {"b", {1, 2}}});
  ASSERT_EQ(chart.series.size(), 1u);
  EXPECT_EQ(chart.series[0].name, "all runs");
  EXPECT_TRUE(histogram_of("lengths", {}, {}).empty());
  EXPECT_FALSE(histogram_of("lengths", {}, {{"one", {5}}}).empty());
}

TEST(Chart, SeveralStandInOneFileAndNoneLiesOnAnother) {
  const std::vector<Chart> charts(3, chart_of(ChartForm::line));
  const std::string svg = charts_document(charts);
  const double height = view_height(chart_svg(charts[0]));
  EXPECT_THAT(svg, HasSubstr("viewBox=\"0 0 800 "));
  EXPECT_THAT(svg, HasSubstr("x=\"0\" y=\"0\" width=\"400\""));
  EXPECT_THAT(svg, HasSubstr("x=\"400\" y=\"0\" width=\"400\""));
  EXPECT_THAT(svg, HasSubstr(fmt::format("x=\"0\" y=\"{:.0f}\" width=\"400\"", height)));
  EXPECT_THROW(charts_document({}), std::logic_error);
}

}  // namespace
}  // namespace espalier
