#include "bench/load/load_diagrams.h"

#include <gtest/gtest.h>

#include "bench/load/testing/measured_load.h"

namespace espalier {
namespace {

TEST(LoadDiagrams, AreOfSpeedFirstTokensAndGaps) {
  const std::vector<LoadDiagram> diagrams = load_diagrams(load_of_two_servers());
  ASSERT_EQ(diagrams.size(), 6u);
  for (const LoadDiagram& diagram : diagrams) {
    ASSERT_EQ(diagram.lines.size(), 2u) << diagram.id;
    EXPECT_EQ(diagram.lines[0].name, "[1] espalier, draft none");
    EXPECT_EQ(diagram.categories, (std::vector<std::string>{"1", "64"}));
    EXPECT_EQ(diagram.lines[1].points.size(), 2u);
  }
  const LoadPoint& speed = diagrams[0].lines[1].points[1];
  EXPECT_EQ(speed.category, 1u);
  EXPECT_EQ(speed.value, 11 * 32);
  ASSERT_TRUE(speed.spread);
  EXPECT_LT(speed.spread->lower, speed.value);
  EXPECT_EQ(diagrams[2].id, "time-to-first-token-p95");
  EXPECT_EQ(diagrams[2].lines[0].points[0].value, 9500);
  EXPECT_EQ(diagrams[2].lines[0].points[0].note, "of 48");
}

TEST(LoadDiagrams, InterruptsHaveOneOfTheirOwn) {
  const std::vector<LoadDiagram> diagrams = load_diagrams(interrupted_load());
  ASSERT_EQ(diagrams.size(), 1u);
  EXPECT_EQ(diagrams[0].id, "interrupts-1");
  ASSERT_EQ(diagrams[0].lines.size(), 2u);
  EXPECT_EQ(diagrams[0].lines[1].name, "[1] espalier, draft none, disturbed");
  EXPECT_EQ(diagrams[0].lines[1].points[3].value, 400);
}

TEST(LoadDiagrams, ALoadWithoutAnAnswerHasNone) {
  LoadResult result = load_of_two_servers();
  for (ShapeResult& shape : result.shapes)
    for (LoadFigures& figures : shape.figures) figures = {.requests = 4, .failed = 4};
  EXPECT_TRUE(load_diagrams(result).empty());
}

}  // namespace
}  // namespace espalier
