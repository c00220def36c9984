#include "bench/load/load_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LoadFigures figures(double scale) {
  LoadFigures made{.tokens_per_second = {10 * scale, 12 * scale, 11 * scale}, .requests = 48, .tokens = 6144};
  made.first_token = {48, 0.1 * scale, 9.5 * scale, 12345.6, 20000};
  made.gaps = {{6096, 0.01, 0.02, 0.03, 0.4}, {6096, 0.005, 0.01, 12.5, 99}};
  return made;
}

LoadResult two_servers() {
  LoadResult result;
  result.plan.targets = {{.url = {"127.0.0.1", 8080}, .speculation = "none", .model = "tiny", .owner = "espalier"},
                         {.url = {"some-host-with-a-name.example", 65535, "/with/a/prefix"},
                          .model = "/models/with-a-long-name/and-a-longer-one/SmolLM2-135M-Instruct.Q4_1.gguf",
                          .owner = "llamacpp\x1b[31m"}};
  result.plan.shapes = {{.users = 1}, {.users = 64}};
  for (const LoadShape& shape : result.plan.shapes)
    result.shapes.push_back({.shape = shape, .figures = {figures(shape.users), figures(0.5 * shape.users)}});
  return result;
}

void expect_lines_fit(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(LoadReport, TheTableFitsAHundredColumnsAndHasTheRatioOfMedians) {
  const std::string text = load_text(two_servers());
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("11.0 [10.5, 11.5]"));
  EXPECT_THAT(text, HasSubstr("2.00x"));
  EXPECT_THAT(text, HasSubstr("a gap is the time between two events"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("failed")));
}

TEST(LoadReport, FailuresShortAnswersAndWhatIsNotKnownAreSaid) {
  LoadResult result = two_servers();
  LoadFigures& figures = result.shapes[1].figures[1];
  figures.failed = 3;
  figures.problem = "status 503: \"" + std::string(90, 'x') + "\"";
  figures.short_answers = 2;
  figures.usage_known = false;
  result.shapes[0].figures[0].tokens_known = false;
  result.interrupted = true;
  const std::string text = load_text(result);
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("[2] 64 users: 3 of 48 requests failed, the first: status 503:"));
  EXPECT_THAT(text, HasSubstr("[2] 64 users: 2 answers were shorter than 128 tokens"));
  EXPECT_THAT(text, HasSubstr("[2] does not say how many tokens an answer has"));
  EXPECT_THAT(text, HasSubstr("[1] does not say how many tokens an event has"));
  EXPECT_THAT(text, HasSubstr("interrupted: these are the figures until then"));
}

TEST(LoadReport, ALoadWithoutAnAnswerHasDashes) {
  LoadResult result = two_servers();
  result.shapes[0].figures[0] = {.requests = 4, .failed = 4, .problem = "Connection refused"};
  EXPECT_FALSE(result.all_failed());
  const std::string text = load_text(result);
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("4 of 4 requests failed, the first: Connection refused"));
  EXPECT_EQ(load_json(result)["loads"][0]["ratio"], nullptr);
  for (auto& shape : result.shapes)
    for (auto& figures : shape.figures) figures = {.requests = 4, .failed = 4};
  EXPECT_TRUE(result.all_failed());
  EXPECT_TRUE(load_charts(result).empty());
  expect_lines_fit(load_text(result));
}

TEST(LoadReport, InterruptsHaveATableAndAChartOfTheirOwn) {
  LoadResult result = two_servers();
  result.plan.settings.interrupt_tokens = 4000;
  InterruptFigures interrupts{.prompts = 1, .prompt_tokens = 4012.3};
  interrupts.first_token = {1, 12.3, 12.3, 12.3, 12.3};
  interrupts.calm = interrupts.disturbed = figures(1).gaps;
  result.shapes[0].figures[0].interrupts = interrupts;
  const std::string text = load_text(result);
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("[1] 1 user: 1 prompt of 4012 tokens arrived; first token after 12300 ms"));
  EXPECT_EQ(load_charts(result).size(), 1u);
  EXPECT_EQ(load_json(result)["loads"][0]["figures"][0]["interrupts"]["gaps_disturbed"]["between_events_ms"]["p99"],
            30);
}

TEST(LoadReport, JsonHasEverySampleAndNoKey) {
  LoadResult result = two_servers();
  result.plan.targets[0].key = "secret";
  const auto json = load_json(result);
  EXPECT_EQ(json["servers"][0]["url"], "http://127.0.0.1:8080");
  EXPECT_EQ(json["loads"][1]["users"], 64);
  EXPECT_EQ(json["loads"][0]["figures"][1]["tokens_per_second"]["samples"].size(), 3u);
  EXPECT_EQ(json["loads"][0]["ratio"], 2);
  EXPECT_THAT(json.dump() + load_text(result), Not(HasSubstr("secret")));
}

TEST(LoadReport, ChartsAreOfSpeedFirstTokensAndGaps) {
  const std::vector<Chart> charts = load_charts(two_servers());
  ASSERT_EQ(charts.size(), 6u);
  for (const Chart& chart : charts) {
    ASSERT_EQ(chart.series.size(), 2u) << chart.id;
    EXPECT_EQ(chart.series[0].name, "[1] espalier, draft none");
  }
  const std::string svg = charts_document(charts);
  EXPECT_THAT(svg, HasSubstr("Time to first token"));
  EXPECT_THAT(svg, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace espalier
