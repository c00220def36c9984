// The figures of runs and settings, as run_figures() and result.json write them: looked up by name, and in the words
// that tables and axes use. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "experiments/suite_file.h"
#include "report/report_table.h"

namespace espalier {

// How a figure is shown: "speed-up", in so many decimals, times a factor (seconds become milliseconds).
struct FigureStyle {
  std::string title = {};
  int decimals = 2;
  double factor = 1;
};
FigureStyle figure_style(std::string_view figure);

// A single number of a figure: itself, its "value" or its "mean", or what a suffix names ("accept_L_p90"). Nothing
// where the figure is not there, or has no samples. Not yet multiplied by the factor.
struct FigureValue {
  double value = 0;
  std::optional<Interval> interval = {};
};
std::optional<FigureValue> figure_value(const nlohmann::ordered_json& figures, const std::string& figure);

// One of a distribution's "mean", "p50", "p90", "p99".
std::optional<FigureValue> figure_statistic(const nlohmann::ordered_json& figures, const std::string& figure,
                                            const std::string& statistic);

// Cells and points, in the figure's own unit; an empty cell where there is nothing.
FigureValue in_unit(FigureValue value, const FigureStyle& style);
Cell figure_cell(const std::optional<FigureValue>& value, const FigureStyle& style);

// What a paper printed for a figure in a column of one of its tables.
std::optional<double> paper_value(const std::vector<PaperTable>& paper, std::string_view figure,
                                  std::string_view column);
bool paper_has(const std::vector<PaperTable>& paper, std::string_view figure);

}  // namespace espalier
