#include "experiments/experiment_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_field.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

Json reason_or_null(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json();
}

Json paper_json(const PaperTable& table) {
  Json rows = Json::object();
  for (const PaperTable::Row& row : table.rows) {
    Json values = Json::array();
    for (const auto& value : row.values) values.push_back(value ? Json(*value) : Json());
    rows[row.figure] = values;
  }
  return {{"source", table.source}, {"columns", table.columns}, {"rows", rows}};
}

Json setting_json(const SettingResult& setting) {
  return {{"name", setting.name},
          {"drafter", setting.drafter},
          {"flags", setting.flags},
          {"run", setting.run.empty() ? Json() : Json(setting.run)},
          {"identical", to_json(setting.identity)},
          {"figures", Json::parse(setting.figures)}};
}

template <typename Count>
Json counts_over(std::span<const TurnRecord> turns, Count count) {
  std::vector<double> values;
  for (const TurnRecord& turn : turns)
    if (!turn.error) values.push_back(static_cast<double>(count(turn)));
  return to_json(distribution_of(values));
}

void add_comparison(const BaselineComparison& compared, Json& figures) {
  figures["baseline_tokens_per_second"] = to_json(compared.speeds.tokens_per_second);
  figures["baseline_tpot"] = to_json(compared.speeds.tpot);
  figures["baseline_ttft"] = to_json(compared.speeds.ttft);
  figures["speed_up"] = to_json(compared.speed_up);
  figures["decode_speed_up"] = to_json(compared.decode_speed_up);
  if (compared.drift.count > 0) figures["drift"] = to_json(compared.drift);
}

// "1.72", "1000", or "-" where there is none.
std::string shown(const Json& figures, const char* name) {
  const auto found = figures.find(name);
  if (found != figures.end() && found->is_number_integer()) return fmt::format("{}", found->get<std::int64_t>());
  if (found != figures.end() && found->is_number()) return fmt::format("{:.3f}", found->get<double>());
  if (found == figures.end() || !found->is_object()) return "-";
  const auto value = found->find(found->contains("mean") ? "mean" : "value");
  return value == found->end() || !value->is_number() ? "-" : fmt::format("{:.2f}", value->get<double>());
}

std::string label(const Json& setting) {
  const std::string drafter = setting["drafter"].get<std::string>();
  return drafter.empty() ? setting["name"].get<std::string>()
                         : fmt::format("{} ({})", setting["name"].get<std::string>(), drafter);
}

using Columns = std::vector<std::pair<const char*, const char*>>;  // figure, heading

Columns columns_of(const Experiment& experiment) {
  switch (experiment.kind) {
    case ExperimentKind::medusa: return {{"ac", "AC"}, {"overhead", "overhead"}, {"speed_up", "speed-up"}};
    case ExperimentKind::mask_leakage: return {{"rows", "rows"}, {"logits_changed", "logits changed"}};
    case ExperimentKind::quality:
      return {{"problems", "problems"}, {"baseline_pass_at_1", "pass@1 without"}, {"pass_at_1", "with"}};
    default:
      return {{"baseline_tokens_per_second", "tok/s without"},
              {"tokens_per_second", "tok/s with"},
              {"speed_up", "speed-up"},
              {"accept_L", "accept_L"}};
  }
}

std::string stage_lines(const Json& setting) {
  std::string text;
  for (const Json& stage : setting["figures"]["stages"])
    text += fmt::format("    {:<8} {:8.2f} ms a {}, p99/mean {:.1f}\n", stage["stage"].get<std::string>(),
                        stage["milliseconds"]["mean"].get<double>(), stage["per"].get<std::string>(),
                        stage["p99_over_mean"].get<double>());
  return text;
}

std::string bucket_lines(const Json& setting) {
  std::string text;
  for (const Json& bucket : setting["figures"]["buckets"])
    text += fmt::format("    {:<13} {:5.1f} %\n", bucket["distance"].get<std::string>(),
                        100 * bucket["top1_share"].get<double>());
  return text;
}

std::string table_row(const Json& setting, const Columns& columns) {
  std::string row;
  for (const auto& [figure, heading] : columns)
    row += fmt::format("  {} {}", heading, shown(setting["figures"], figure));
  return row + "\n";
}

// What the screen shows of a setting; `width` is that of the longest label.
std::string setting_lines(const Experiment& experiment, const Json& setting, std::size_t width) {
  switch (experiment.kind) {
    case ExperimentKind::stages: return fmt::format("  {}\n{}", label(setting), stage_lines(setting));
    case ExperimentKind::attention_distance:
      return fmt::format("  {}  share of top-1 attention by distance\n{}", label(setting), bucket_lines(setting));
    default: return fmt::format("  {:<{}}{}", label(setting), width, table_row(setting, columns_of(experiment)));
  }
}

}  // namespace

void Identity::add(const Identity& other) {
  turns += other.turns;
  identical += other.identical;
  if (!difference) difference = other.difference;
}

Identity identity_of(const Summary& summary) {
  if (!summary.compared) return {};
  return {summary.compared->turns, summary.compared->identical, summary.compared->difference};
}

std::string identity_text(const Identity& identity) {
  return fmt::format("{} of {} turns identical{}{}", identity.identical, identity.turns,
                     identity.difference ? ": " : "", identity.difference.value_or(""));
}

Json to_json(const Identity& identity) {
  return {{"turns", identity.turns},
          {"identical", identity.identical},
          {"first_difference", reason_or_null(identity.difference)}};
}

Identity identity_from(const nlohmann::json& object, std::string_view where) {
  const JsonField field(object, where);
  Identity identity{field.at("turns").integer(), field.at("identical").integer()};
  if (const auto difference = field.find("first_difference")) identity.difference = difference->string();
  return identity;
}

Identity ExperimentResult::identity() const {
  Identity all;
  for (const SettingResult& setting : settings) all.add(setting.identity);
  return all;
}

Json run_figures(std::span<const TurnRecord> turns) {
  const Summary summary = summarize(turns);
  std::vector<double> accept_pos;
  for (const Estimate& share : summary.accept_pos) accept_pos.push_back(share.value);
  Json figures = {{"turns", summary.turns},
                  {"tokens", summary.tokens},
                  {"rounds", summary.rounds},
                  {"prompt_tokens", counts_over(turns, [](const TurnRecord& turn) { return turn.prompt.size(); })},
                  {"output_tokens", counts_over(turns, [](const TurnRecord& turn) { return turn.tokens.size(); })},
                  {"tokens_per_second", to_json(summary.speeds.tokens_per_second)},
                  {"tpot", to_json(summary.speeds.tpot)},
                  {"ttft", to_json(summary.speeds.ttft)},
                  {"accept_L", to_json(summary.accept_length)},
                  {"tau", {{"value", summary.tau.value}, {"interval", to_json(summary.tau.interval)}}},
                  {"accept_pos", accept_pos},
                  {"reached", summary.reached}};
  if (summary.compared) add_comparison(*summary.compared, figures);
  return figures;
}

Json to_json(const Experiment& experiment, const ExperimentResult& result) {
  Json settings = Json::array(), paper = Json::array();
  for (const SettingResult& setting : result.settings) settings.push_back(setting_json(setting));
  for (const PaperTable& table : experiment.paper) paper.push_back(paper_json(table));
  return {{"kind", "experiment"},
          {"schema", kSchema},
          {"id", experiment.id},
          {"identical", to_json(result.identity())},
          {"title", experiment.title},
          {"about", experiment.about},
          {"experiment", name(experiment.kind)},
          {"reproduces", experiment.reproduces},
          {"from", experiment.from.empty() ? Json() : Json(experiment.from)},
          {"skipped", reason_or_null(result.skipped)},
          {"failure", reason_or_null(result.failure)},
          {"profile", result.profile},
          {"axis", experiment.axis.empty() ? Json() : Json(experiment.axis)},
          {"settings", settings},
          {"paper", paper},
          {"plot", {{"form", experiment.plot.form}, {"figures", experiment.plot.figures}}}};
}

std::string result_text(const Experiment& experiment, const Json& result) {
  std::string text = fmt::format("{}: {}\n", experiment.id, experiment.title);
  if (!result["skipped"].is_null()) return fmt::format("{}  skipped: {}\n", text, result["skipped"].get<std::string>());
  std::size_t width = 0;
  for (const Json& setting : result["settings"]) width = std::max(width, label(setting).size());
  for (const Json& setting : result["settings"]) text += setting_lines(experiment, setting, width);
  if (!result["failure"].is_null()) text += fmt::format("  failed: {}\n", result["failure"].get<std::string>());
  return text;
}

}  // namespace espalier
