#include "report/report_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "eval/turn_table.h"
#include "report/markup.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

std::string cell_html(const Cell& cell, bool heading) {
  std::string inner = markup_text(shown(cell));
  if (cell.interval)
    inner += fmt::format(" <span class=\"interval\">[{:.{}f}, {:.{}f}]</span>", cell.interval->low, cell.decimals,
                         cell.interval->high, cell.decimals);
  if (heading) return fmt::format("<th scope=\"row\">{}</th>", inner);
  std::string kind = cell.number ? "number" : "text";
  if (cell.paper) kind += " paper";
  return fmt::format("<td class=\"{}\">{}</td>", kind, inner);
}

// Whether a paper printed all of its numbers.
bool is_of_paper(const std::vector<Cell>& row) {
  const auto measured = [](const Cell& cell) { return cell.number && !cell.paper; };
  return std::ranges::any_of(row, &Cell::paper) && std::ranges::none_of(row, measured);
}

Json cell_json(const Cell& cell) {
  if (!cell.number) return cell.text.empty() ? Json() : Json(cell.text);
  if (!cell.interval) return *cell.number;
  return {{"value", *cell.number}, {"interval", to_json(*cell.interval)}};
}

bool has_interval(const Table& table, std::size_t column) {
  return std::ranges::any_of(table.rows, [&](const auto& row) { return row[column].interval.has_value(); });
}

std::string csv_cell(const Cell& cell, bool with_interval) {
  std::string fields = cell.number ? fmt::format("{}", *cell.number) : csv_field(cell.text);
  if (!with_interval) return fields;
  return fields + (cell.interval ? fmt::format(",{},{}", cell.interval->low, cell.interval->high) : ",,");
}

}  // namespace

Cell text_cell(std::string text) {
  return {.text = std::move(text)};
}

Cell number_cell(double number, int decimals) {
  return {.number = number, .decimals = decimals};
}

Cell number_cell(double number, const Interval& interval, int decimals) {
  return {.number = number, .interval = interval, .decimals = decimals};
}

Cell paper_cell(double number, int decimals) {
  return {.number = number, .decimals = decimals, .paper = true};
}

std::string shown(const Cell& cell) {
  return cell.number ? fmt::format("{:.{}f}", *cell.number, cell.decimals) : cell.text;
}

bool has_number(const Table& table, std::size_t column) {
  return std::ranges::any_of(table.rows, [&](const auto& row) { return row[column].number.has_value(); });
}

void Table::add(std::vector<Cell> row) {
  check(row.size() == columns.size(), "table {}: {} cells, expected {}", id, row.size(), columns.size());
  rows.push_back(std::move(row));
}

bool Table::has_intervals() const {
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (has_interval(*this, i)) return true;
  return false;
}

std::string cells_html(const std::vector<Cell>& row) {
  std::string html;
  for (std::size_t i = 0; i < row.size(); ++i) html += cell_html(row[i], i == 0);
  return html;
}

std::string headings_html(const Table& table) {
  std::string html = "<thead><tr>";
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    html += fmt::format("<th scope=\"col\"{}>{}</th>", i > 0 && has_number(table, i) ? " class=\"number\"" : "",
                        markup_text(table.columns[i]));
  return html + "</tr></thead>\n";
}

std::string to_html(const Table& table) {
  std::string html = fmt::format("<div class=\"scroll\"><table id=\"{}\">", table.id);
  if (!table.caption.empty()) html += fmt::format("<caption><span>{}</span></caption>", markup_text(table.caption));
  html += headings_html(table) + "<tbody>\n";
  for (const auto& row : table.rows)
    html += fmt::format("<tr{}>{}</tr>\n", is_of_paper(row) ? " class=\"paper\"" : "", cells_html(row));
  return html + "</tbody></table></div>\n";
}

std::string to_csv(const Table& table) {
  std::string csv;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    csv += fmt::format("{}{}", i == 0 ? "" : ",", csv_field(table.columns[i]));
    if (has_interval(table, i))
      csv += fmt::format(",{},{}", csv_field(table.columns[i] + " low"), csv_field(table.columns[i] + " high"));
  }
  csv += '\n';
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      csv += fmt::format("{}{}", i == 0 ? "" : ",", csv_cell(row[i], has_interval(table, i)));
    csv += '\n';
  }
  return csv;
}

Json to_json(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) cells.push_back(cell_json(cell));
    rows.push_back(cells);
  }
  return {{"id", table.id}, {"caption", table.caption}, {"columns", table.columns}, {"rows", rows}};
}

}  // namespace espalier
