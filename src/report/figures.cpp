#include "report/figures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSuffixes[] = {"_mean", "_p50", "_p90", "_p99"};

struct NamedStyle {
  std::string_view figure, title;
  int decimals;
  double factor;
};
constexpr NamedStyle kStyles[] = {
    {"baseline_tokens_per_second", "baseline Tok/s", 2, 1},
    {"tokens_per_second", "speculative Tok/s", 2, 1},
    {"speed_up", "speed-up", 2, 1},
    {"decode_speed_up", "speed-up from the first token on", 2, 1},
    {"accept_L", "accept_L", 2, 1},
    {"accept_L_p90", "accept_L p90", 0, 1},
    {"tau", "tau", 2, 1},
    {"tpot", "TPOT, ms", 1, 1000},
    {"ttft", "TTFT, ms", 1, 1000},
    {"baseline_tpot", "baseline TPOT, ms", 1, 1000},
    {"baseline_ttft", "baseline TTFT, ms", 1, 1000},
    {"drift", "baseline drift", 3, 1},
    {"prompt_tokens", "tokens of the prompt", 0, 1},
    {"output_tokens", "tokens of the answer", 0, 1},
    {"ac", "AC, tokens a step", 2, 1},
    {"overhead", "overhead", 2, 1},
    {"turns", "turns", 0, 1},
    {"rounds", "rounds", 0, 1},
    {"rows", "rows looked at", 0, 1},
    {"tokens_changed", "tokens changed", 0, 1},
    {"logits", "logits compared", 0, 1},
    {"logits_changed", "logits changed", 0, 1},
    {"rows_changed", "rows changed", 0, 1},
    {"blind_rows", "blind rows", 0, 1},
    {"problems", "problems", 0, 1},
    {"baseline_pass_at_1", "pass@1 without", 3, 1},
    {"pass_at_1", "pass@1 with", 3, 1},
};

std::optional<Interval> interval_of(const Json& object) {
  const auto found = object.find("interval");
  if (found == object.end() || !found->is_array() || found->size() != 2) return std::nullopt;
  if (!(*found)[0].is_number() || !(*found)[1].is_number()) return std::nullopt;
  return Interval{(*found)[0].get<double>(), (*found)[1].get<double>()};
}

// "accept_L_p90" is the p90 of accept_L.
std::pair<std::string, std::string> split_statistic(const std::string& figure) {
  for (const std::string_view suffix : kSuffixes)
    if (figure.ends_with(suffix))
      return {figure.substr(0, figure.size() - suffix.size()), std::string(suffix.substr(1))};
  return {figure, ""};
}

}  // namespace

FigureStyle figure_style(std::string_view figure) {
  for (const NamedStyle& style : kStyles)
    if (style.figure == figure) return {std::string(style.title), style.decimals, style.factor};
  return {.title = std::string(figure)};
}

std::optional<FigureValue> figure_statistic(const Json& figures, const std::string& figure,
                                            const std::string& statistic) {
  const auto found = figures.find(figure);
  if (found == figures.end() || !found->is_object()) return std::nullopt;
  if (found->contains("count") && (*found)["count"] == 0) return std::nullopt;
  const auto value = found->find(statistic);
  if (value == found->end() || !value->is_number()) return std::nullopt;
  FigureValue result{.value = value->get<double>()};
  if (statistic == "mean" || statistic == "value") result.interval = interval_of(*found);
  return result;
}

std::optional<FigureValue> figure_value(const Json& figures, const std::string& figure) {
  const auto found = figures.find(figure);
  if (found != figures.end() && found->is_number()) return FigureValue{.value = found->get<double>()};
  if (found != figures.end() && found->is_object())
    return figure_statistic(figures, figure, found->contains("mean") ? "mean" : "value");
  const auto [name, statistic] = split_statistic(figure);
  return statistic.empty() ? std::nullopt : figure_statistic(figures, name, statistic);
}

FigureValue in_unit(FigureValue value, const FigureStyle& style) {
  value.value *= style.factor;
  if (value.interval)
    value.interval = Interval{value.interval->low * style.factor, value.interval->high * style.factor};
  return value;
}

Cell figure_cell(const std::optional<FigureValue>& value, const FigureStyle& style) {
  if (!value) return {};
  const FigureValue scaled = in_unit(*value, style);
  return {.number = scaled.value, .interval = scaled.interval, .decimals = style.decimals};
}

std::optional<double> paper_value(const std::vector<PaperTable>& paper, std::string_view figure,
                                  std::string_view column) {
  for (const PaperTable& table : paper) {
    const auto place = std::ranges::find(table.columns, column) - table.columns.begin();
    const auto row = std::ranges::find(table.rows, figure, &PaperTable::Row::figure);
    if (row == table.rows.end() || place >= std::ssize(row->values)) continue;
    if (const auto& value = row->values[static_cast<std::size_t>(place)]) return value;
  }
  return std::nullopt;
}

bool paper_has(const std::vector<PaperTable>& paper, std::string_view figure) {
  return std::ranges::any_of(paper, [&](const PaperTable& table) {
    return std::ranges::find(table.rows, figure, &PaperTable::Row::figure) != table.rows.end();
  });
}

}  // namespace espalier
