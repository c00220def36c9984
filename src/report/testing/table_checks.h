// Tables of a report, as their JSON files have them, held against figures that were computed otherwise
// (plain_figures.h): every cell of every row, and no row or column that nobody expected.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "report/testing/plain_figures.h"

namespace espalier {

// By the labels of runs.
template <typename Value>
using ByRun = std::map<std::string, Value>;

void expect_number(const nlohmann::json& cell, double expected, const std::string& what);
// The value and both ends of its interval.
void expect_mean(const nlohmann::json& cell, const PlainFigure& expected, const std::string& what);

// `paper`: by title, what it printed for mean, p50, p90 and p99, null where it printed nothing.
void expect_headline(const nlohmann::json& table, const ByRun<PlainFigures>& runs,
                     const std::map<std::string, nlohmann::json>& paper);
void expect_side_by_side(const nlohmann::json& table, const ByRun<PlainFigures>& runs,
                         const ByRun<std::string>& identical);
void expect_stages(const nlohmann::json& table, const ByRun<std::map<std::string, PlainStage>>& runs);
void expect_accept_pos(const nlohmann::json& table, const ByRun<std::map<std::int64_t, PlainDepth>>& runs);

// A row of a settings' table from its fourth cell on; behind a figure may stand what the paper printed.
void expect_setting(const nlohmann::json& table, const nlohmann::json& row, const PlainFigures& figures,
                    const std::map<std::string, nlohmann::json>& paper);

}  // namespace espalier
