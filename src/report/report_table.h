// A table of the report: the same cells as HTML, as comma-separated values and as JSON. A value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/statistics.h"

namespace espalier {

// A text, or a number with the decimals that people want to see. Files keep the number as it is.
struct Cell {
  std::string text = {};  // of a cell without a number; empty: there is nothing to say
  std::optional<double> number = {};
  std::optional<Interval> interval = {};  // its confidence interval
  int decimals = 2;
  bool paper = false;  // what a paper printed, set apart from what was measured
};
Cell text_cell(std::string text);
Cell number_cell(double number, int decimals = 2);
Cell number_cell(double number, const Interval& interval, int decimals = 2);
Cell paper_cell(double number, int decimals = 2);
// As people see it: "1.27", without its interval.
std::string shown(const Cell& cell);

struct Table {
  std::string id = {};       // a slug; unique in a report
  std::string caption = {};  // says what is in it; may be empty
  std::vector<std::string> columns = {};
  std::vector<std::vector<Cell>> rows = {};  // each as long as columns; the first cell names the row
  bool folded = false;                       // shown only when asked for

  void add(std::vector<Cell> row);
  bool has_intervals() const;
};

std::string to_html(const Table& table);
// The cells of a row and the headings, for those who write tables of their own.
std::string cells_html(const std::vector<Cell>& row);
std::string headings_html(const Table& table);
// Whether a column has numbers in it.
bool has_number(const Table& table, std::size_t column);
// A column with an interval is followed by two more, "... low" and "... high".
std::string to_csv(const Table& table);
// {"id", "caption", "columns", "rows": [[cell]]}: a cell is null, a text, a number, or {"value", "interval"}.
nlohmann::ordered_json to_json(const Table& table);

}  // namespace espalier
