#include "report/testing/table_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

namespace espalier {
namespace {

using Json = nlohmann::json;

double value_of(const Json& cell) {
  return (cell.is_object() ? cell.at("value") : cell).get<double>();
}

void expect_near(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value, expected, 1e-9 * std::max(1.0, std::abs(expected))) << what;
}

Json columns(std::initializer_list<const char*> names) {
  return Json(std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace

void expect_number(const Json& cell, double expected, const std::string& what) {
  ASSERT_TRUE(cell.is_number() || cell.is_object()) << what << ": " << cell;
  expect_near(value_of(cell), expected, what);
}

void expect_mean(const Json& cell, const PlainFigure& expected, const std::string& what) {
  expect_number(cell, expected.mean, what);
  ASSERT_TRUE(cell.contains("interval")) << what << ": " << cell;
  expect_near(cell["interval"][0].get<double>(), expected.interval.low, what + ", low");
  expect_near(cell["interval"][1].get<double>(), expected.interval.high, what + ", high");
}

void expect_headline(const Json& table, const ByRun<PlainFigures>& runs, const std::map<std::string, Json>& paper) {
  EXPECT_EQ(table["columns"], columns({"figure", "run", "mean", "p50", "p90", "p99"}));
  ByRun<std::set<std::string>> seen, expected;
  for (const auto& [label, figures] : runs)
    for (const auto& [title, figure] : figures)
      if (title != "tau") expected[label].insert(title);
  for (const auto& [title, values] : paper) expected["paper"].insert(title);
  for (const Json& row : table["rows"]) {
    const std::string title = row[0], label = row[1], what = label + ": " + title;
    EXPECT_TRUE(seen[label].insert(title).second) << what;
    if (label == "paper") {
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(row[2 + i], paper.at(title)[i]) << what;
      continue;
    }
    const PlainFigure& figure = runs.at(label).at(title);
    expect_mean(row[2], figure, what);
    expect_number(row[3], figure.p50, what + " p50");
    expect_number(row[4], figure.p90, what + " p90");
    expect_number(row[5], figure.p99, what + " p99");
  }
  EXPECT_EQ(seen, expected);
}

void expect_side_by_side(const Json& table, const ByRun<PlainFigures>& runs, const ByRun<std::string>& identical) {
  EXPECT_EQ(table["columns"], columns({"run", "turns", "identical", "baseline Tok/s", "speculative Tok/s", "speed-up",
                                       "accept_L", "tau"}));
  EXPECT_EQ(table["rows"].size(), runs.size());
  for (const Json& row : table["rows"]) {
    const std::string label = row[0];
    EXPECT_EQ(row[2], identical.at(label)) << label;
    for (std::size_t i = 3; i < row.size(); ++i) {
      const std::string title = table["columns"][i];
      expect_mean(row[i], runs.at(label).at(title), label + ": " + title);
    }
  }
}

void expect_stages(const Json& table, const ByRun<std::map<std::string, PlainStage>>& runs) {
  EXPECT_EQ(table["columns"], columns({"stage", "run", "per", "mean", "p50", "p90", "p99", "p99/mean", "share, %"}));
  EXPECT_EQ(table["rows"].size(), 6 * runs.size());
  for (const Json& row : table["rows"]) {
    const std::string name = row[0], label = row[1], what = label + ": " + name;
    const PlainStage& stage = runs.at(label).at(name);
    EXPECT_EQ(row[2], name == "prefill" ? "turn" : "round") << what;
    expect_mean(row[3], stage.milliseconds, what);
    expect_number(row[4], stage.milliseconds.p50, what + " p50");
    expect_number(row[5], stage.milliseconds.p90, what + " p90");
    expect_number(row[6], stage.milliseconds.p99, what + " p99");
    expect_number(row[7], stage.milliseconds.p99 / stage.milliseconds.mean, what + " p99/mean");
    expect_number(row[8], 100 * stage.share, what + " share");
  }
}

void expect_accept_pos(const Json& table, const ByRun<std::map<std::int64_t, PlainDepth>>& runs) {
  EXPECT_EQ(table["columns"], columns({"depth", "run", "judged", "accept_pos"}));
  std::size_t expected = 0;
  for (const auto& [label, depths] : runs) expected += depths.size();
  EXPECT_EQ(table["rows"].size(), expected);
  for (const Json& row : table["rows"]) {
    const std::string depth = row[0], label = row[1], what = label + ", depth " + depth;
    const PlainDepth& plain = runs.at(label).at(std::stoll(depth));
    EXPECT_EQ(row[2], plain.judged) << what;
    expect_mean(row[3], plain.accepted, what);
  }
}

void expect_setting(const Json& table, const Json& row, const PlainFigures& figures,
                    const std::map<std::string, Json>& paper) {
  const std::string setting = row[0];
  std::string figure;
  for (std::size_t i = 3; i < row.size(); ++i) {
    const std::string title = table["columns"][i], what = setting + ": " + title;
    if (title == "paper") {
      EXPECT_EQ(row[i], paper.at(figure)) << what;
    } else if (title == "accept_L p90") {
      expect_number(row[i], figures.at("accept_L").p90, what);
    } else {
      expect_mean(row[i], figures.at(title), what);
    }
    figure = title;
  }
}

}  // namespace espalier
