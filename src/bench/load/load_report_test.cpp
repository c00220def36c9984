#include "bench/load/load_report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/load/testing/measured_load.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_lines_fit(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(LoadReport, TheTableFitsAHundredColumnsAndHasTheRatioOfMedians) {
  const std::string text = load_text(load_of_two_servers());
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("11.0 [10.5, 11.5]"));
  EXPECT_THAT(text, HasSubstr("2.00x"));
  EXPECT_THAT(text, HasSubstr("a gap is the time between two events"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("failed")));
}

TEST(LoadReport, FailuresShortAnswersAndWhatIsNotKnownAreSaid) {
  LoadResult result = load_of_two_servers();
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
  LoadResult result = load_of_two_servers();
  result.shapes[0].figures[0] = {.requests = 4, .failed = 4, .problem = "Connection refused"};
  EXPECT_FALSE(result.all_failed());
  const std::string text = load_text(result);
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("4 of 4 requests failed, the first: Connection refused"));
  EXPECT_EQ(load_json(result)["loads"][0]["ratio"], nullptr);
  for (auto& shape : result.shapes)
    for (auto& figures : shape.figures) figures = {.requests = 4, .failed = 4};
  EXPECT_TRUE(result.all_failed());
  expect_lines_fit(load_text(result));
}

TEST(LoadReport, InterruptsHaveATableOfTheirOwn) {
  const LoadResult result = interrupted_load();
  const std::string text = load_text(result);
  expect_lines_fit(text);
  EXPECT_THAT(text, HasSubstr("[1] 1 user: 1 prompt of 4012 tokens arrived; first token after 12300 ms"));
  EXPECT_EQ(load_json(result)["loads"][0]["figures"][0]["interrupts"]["gaps_disturbed"]["between_events_ms"]["p99"],
            30);
}

TEST(LoadReport, JsonHasEverySampleAndNoKey) {
  LoadResult result = load_of_two_servers();
  result.plan.targets[0].key = "secret";
  const auto json = load_json(result);
  EXPECT_EQ(json["servers"][0]["url"], "http://127.0.0.1:8080");
  EXPECT_EQ(json["loads"][1]["users"], 64);
  EXPECT_EQ(json["loads"][0]["figures"][1]["tokens_per_second"]["samples"].size(), 3u);
  EXPECT_EQ(json["loads"][0]["ratio"], 2);
  EXPECT_THAT(json.dump() + load_text(result), Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace espalier
