#include "experiments/suite_file.h"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::int64_t kFullTokens = 1024;
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20;

template <typename Value>
struct Named {
  std::string_view name;
  Value value;
};

constexpr std::array<Named<ExperimentKind>, 8> kKinds = {{
    {"throughput", ExperimentKind::throughput},
    {"sweep", ExperimentKind::sweep},
    {"stages", ExperimentKind::stages},
    {"medusa", ExperimentKind::medusa},
    {"sensitivity", ExperimentKind::sensitivity},
    {"attention-distance", ExperimentKind::attention_distance},
    {"mask-leakage", ExperimentKind::mask_leakage},
    {"quality", ExperimentKind::quality},
}};
constexpr std::array<Named<Growth>, 3> kGrowths = {
    {{"prompt", Growth::prompt}, {"history", Growth::history}, {"prefix", Growth::prefix}}};
constexpr std::array<Named<int>, 5> kDrafters = {
    {{"head", 0}, {"eagle2", 0}, {"eagle3", 0}, {"medusa", 0}, {"ngram", 0}}};
constexpr std::array<Named<int>, 4> kPlots = {{{"line", 0}, {"bars", 0}, {"distribution", 0}, {"stages", 0}}};

template <typename Value, std::size_t N>
Value one_of(const JsonField& field, const std::array<Named<Value>, N>& all) {
  std::string names;
  for (const auto& [name, value] : all) {
    if (field.string() == name) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  input_error("{}: expected one of {}, got {}", field.where(), names, in_quotes(field.string()));
}

template <typename Value, std::size_t N>
std::string_view name_in(const std::array<Named<Value>, N>& all, Value wanted) {
  return std::ranges::find(all, wanted, &Named<Value>::value)->name;
}

void check_keys(const JsonField& field, std::span<const std::string_view> known) {
  for (const auto& [key, value] : field.object().items())
    if (std::ranges::find(known, key) == known.end()) input_error("{}: unknown key {}", field.where(), in_quotes(key));
}

std::string filled(const JsonField& field) {
  if (field.string().empty()) input_error("{}: expected some text, got an empty one", field.where());
  return field.string();
}

// Small letters, digits and what may stand between them: it becomes a folder beside those that are `taken`.
std::string folder_name(const JsonField& field, std::span<const std::string_view> taken = {}) {
  const std::string& text = field.string();
  const bool fits = !text.empty() && text.size() <= 64 && std::isalnum(static_cast<unsigned char>(text[0])) &&
                    std::ranges::all_of(text, [](unsigned char c) {
                      return std::islower(c) || std::isdigit(c) || c == '-' || c == '_' || c == '.';
                    });
  if (!fits)
    input_error("{}: expected small letters, digits, '-', '_' and '.', at most 64, got {}", field.where(),
                in_quotes(text));
  if (std::ranges::find(taken, text) != taken.end())
    input_error("{}: {} is what a suite calls something of its own, expected another name", field.where(),
                in_quotes(text));
  return text;
}

template <typename Read>
auto list_of(const JsonField& field, Read read) {
  std::vector<decltype(read(field))> values;
  for (const JsonField& element : field.elements()) values.push_back(read(element));
  return values;
}

template <typename Read>
auto filled_list_of(const JsonField& field, Read read, std::string_view what) {
  auto values = list_of(field, read);
  if (values.empty()) input_error("{}: expected one {} or more", field.where(), what);
  return values;
}

std::vector<std::string> texts(const JsonField& field) {
  return list_of(field, filled);
}

PromptSource read_source(const JsonField& field) {
  static constexpr std::string_view kKeys[] = {"data", "skip", "limit", "whole_humaneval"};
  check_keys(field, kKeys);
  PromptSource source{.data = filled(field.at("data"))};
  if (const auto skip = field.find("skip")) source.skip = skip->integer(0, 1 << 30);
  if (const auto limit = field.find("limit")) source.limit = limit->integer(1, 1 << 30);
  source.whole_humaneval = field.boolean_or("whole_humaneval", false);
  return source;
}

PaperTable read_table(const JsonField& field) {
  static constexpr std::string_view kKeys[] = {"source", "columns", "rows"};
  check_keys(field, kKeys);
  PaperTable table{.source = filled(field.at("source")), .columns = texts(field.at("columns"))};
  const JsonField rows = field.at("rows");
  for (const auto& [figure, unused] : rows.object().items()) {
    const JsonField row = rows.at(figure);
    PaperTable::Row values{.figure = figure};
    for (const JsonField& value : row.elements())
      values.values.push_back(value.is_null() ? std::nullopt : std::optional(value.number()));
    if (values.values.size() != table.columns.size())
      input_error("{}: {} values, expected {}, one for each column", row.where(), values.values.size(),
                  table.columns.size());
    table.rows.push_back(std::move(values));
  }
  return table;
}

Setting read_setting(const JsonField& field) {
  static constexpr std::string_view kKeys[] = {"name", "flags", "max_tokens"};
  static constexpr std::string_view kTaken[] = {"prompts", "result.json"};
  check_keys(field, kKeys);
  Setting setting{.name = folder_name(field.at("name"), kTaken)};
  if (const auto flags = field.find("flags")) setting.flags = texts(*flags);
  if (const auto tokens = field.find("max_tokens")) setting.max_tokens = tokens->integer(1, 1 << 20);
  return setting;
}

Lengthening read_lengthening(const JsonField& field) {
  static constexpr std::string_view kKeys[] = {"what", "lengths", "prompts"};
  check_keys(field, kKeys);
  Lengthening result;
  result.what = one_of(field.at("what"), kGrowths);
  result.lengths = list_of(field.at("lengths"), [](const JsonField& length) { return length.integer(0, 1 << 20); });
  if (result.lengths.empty() || !std::ranges::is_sorted(result.lengths, std::less_equal()))
    input_error("{}: expected one length or more, ascending", field.at("lengths").where());
  result.prompts = field.at("prompts").integer(1, 1000);
  return result;
}

PlotPlan read_plot(const JsonField& field) {
  static constexpr std::string_view kKeys[] = {"form", "figures"};
  check_keys(field, kKeys);
  one_of(field.at("form"), kPlots);
  return {.form = field.at("form").string(), .figures = texts(field.at("figures"))};
}

std::vector<std::string> read_drafters(const JsonField& field) {
  std::set<std::string> known;
  return filled_list_of(
      field,
      [&](const JsonField& drafter) {
        one_of(drafter, kDrafters);
        if (!known.insert(drafter.string()).second)
          input_error("{}: {} is there already", drafter.where(), in_quotes(drafter.string()));
        return drafter.string();
      },
      "drafter");
}

// Which keys a kind must have, and which of those that not all kinds have it may have.
struct KindKeys {
  ExperimentKind kind;
  std::vector<std::string_view> needs;
  std::vector<std::string_view> takes;
};

KindKeys keys_of(ExperimentKind kind) {
  switch (kind) {
    case ExperimentKind::throughput:
    case ExperimentKind::medusa: return {kind, {"prompts", "drafters", "settings", "axis"}, {"flags"}};
    case ExperimentKind::sweep: return {kind, {"prompts", "drafters", "settings", "axis"}, {"flags", "retimed_turns"}};
    case ExperimentKind::stages:
    case ExperimentKind::quality: return {kind, {"from"}, {}};
    case ExperimentKind::sensitivity: return {kind, {"prompts", "drafters", "lengthening", "axis"}, {"flags"}};
    case ExperimentKind::attention_distance: return {kind, {"prompts", "drafters"}, {"flags"}};
    case ExperimentKind::mask_leakage: return {kind, {"prompts", "drafters", "settings", "axis", "rounds"}, {"flags"}};
  }
  return {};
}

void check_kind_keys(const JsonField& field, ExperimentKind kind) {
  static constexpr std::string_view kOfSome[] = {"prompts",       "drafters", "axis",        "flags", "settings",
                                                 "retimed_turns", "from",     "lengthening", "rounds"};
  const KindKeys keys = keys_of(kind);
  for (std::string_view key : kOfSome) {
    const bool there = field.find(key).has_value();
    const bool needed = std::ranges::find(keys.needs, key) != keys.needs.end();
    if (needed && !there)
      input_error("{}: {} is missing, expected with kind {}", field.where(), in_quotes(key), name(kind));
    if (there && !needed && std::ranges::find(keys.takes, key) == keys.takes.end())
      input_error("{}: {} means nothing with kind {}", field.where(), in_quotes(key), name(kind));
  }
}

void check_distinct(const JsonField& field, std::span<const Setting> settings) {
  std::set<std::string> names;
  for (const Setting& setting : settings)
    if (!names.insert(setting.name).second)
      input_error("{}: two settings are called {}", field.where(), in_quotes(setting.name));
}

void read_runs(const JsonField& field, Experiment& experiment) {
  if (const auto prompts = field.find("prompts"))
    experiment.prompts = filled_list_of(*prompts, read_source, "data set");
  if (const auto drafters = field.find("drafters")) experiment.drafters = read_drafters(*drafters);
  if (const auto axis = field.find("axis")) experiment.axis = filled(*axis);
  if (const auto flags = field.find("flags")) experiment.flags = texts(*flags);
  if (const auto turns = field.find("retimed_turns")) experiment.retimed_turns = turns->integer(1, 1000);
  if (const auto from = field.find("from")) experiment.from = folder_name(*from);
  if (const auto rounds = field.find("rounds")) experiment.rounds = rounds->integer(1, 1 << 30);
  if (const auto lengthening = field.find("lengthening")) experiment.lengthening = read_lengthening(*lengthening);
  if (const auto settings = field.find("settings")) {
    experiment.settings = filled_list_of(*settings, read_setting, "setting");
    check_distinct(*settings, experiment.settings);
  }
}

std::vector<std::filesystem::path> suite_files(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) input_error("{}: no such file or folder, expected a suite", path.string());
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  if (files.empty()) input_error("{}: no *.json file, expected a folder of experiments", path.string());
  std::ranges::sort(files);
  return files;
}

bool looks_at_runs_of_its_own(const Experiment& experiment) {
  return experiment.kind == ExperimentKind::throughput || experiment.kind == ExperimentKind::sweep;
}

void check_from(const Experiment& experiment, std::span<const Experiment> before) {
  if (experiment.from.empty()) return;
  const auto found = std::ranges::find(before, experiment.from, &Experiment::id);
  if (found == before.end() || !looks_at_runs_of_its_own(*found))
    input_error("{}: from: expected the id of a throughput or sweep experiment before this one, got {}",
                experiment.file.string(), in_quotes(experiment.from));
}

}  // namespace

std::string_view name(ExperimentKind kind) {
  return name_in(kKinds, kind);
}

std::string_view name(Growth growth) {
  return name_in(kGrowths, growth);
}

std::int64_t Experiment::tokens(const Setting& setting, bool full) const {
  if (setting.max_tokens) return *setting.max_tokens;
  return full ? full_max_tokens.value_or(kFullTokens) : max_tokens;
}

Experiment experiment_from(const nlohmann::json& object, const std::filesystem::path& file) {
  static constexpr std::string_view kKeys[] = {"id",          "title",           "about",      "kind",          "paper",
                                               "reproduces",  "prompts",         "max_tokens", "drafters",      "axis",
                                               "flags",       "full_max_tokens", "settings",   "retimed_turns", "from",
                                               "lengthening", "rounds",          "plot"};
  static constexpr std::string_view kTaken[] = {"baselines", "ranks", "suite.json"};
  const std::string where = file.string();
  const JsonField field(object, where);
  check_keys(field, kKeys);
  Experiment experiment{.file = file,
                        .id = folder_name(field.at("id"), kTaken),
                        .title = filled(field.at("title")),
                        .about = field.string_or("about", ""),
                        .kind = one_of(field.at("kind"), kKinds)};
  check_kind_keys(field, experiment.kind);
  if (const auto reproduces = field.find("reproduces")) experiment.reproduces = texts(*reproduces);
  if (const auto paper = field.find("paper")) experiment.paper = list_of(*paper, read_table);
  if (const auto tokens = field.find("max_tokens")) experiment.max_tokens = tokens->integer(1, 1 << 20);
  if (const auto tokens = field.find("full_max_tokens")) experiment.full_max_tokens = tokens->integer(1, 1 << 20);
  if (const auto plot = field.find("plot")) experiment.plot = read_plot(*plot);
  read_runs(field, experiment);
  return experiment;
}

std::vector<Experiment> read_suite(const std::filesystem::path& path) {
  std::vector<Experiment> suite;
  for (const std::filesystem::path& file : suite_files(path)) {
    const nlohmann::json object = parse_json(read_text_file(file, kMaxFileBytes), file.string());
    Experiment experiment = experiment_from(object, file);
    const auto twin = std::ranges::find(suite, experiment.id, &Experiment::id);
    if (twin != suite.end())
      input_error("{}: id: {} is that of {} too", file.string(), in_quotes(experiment.id), twin->file.string());
    check_from(experiment, suite);
    suite.push_back(std::move(experiment));
  }
  return suite;
}

std::vector<Experiment> only(std::vector<Experiment> suite, const std::vector<std::string>& ids) {
  if (ids.empty()) return suite;
  std::set<std::string> wanted(ids.begin(), ids.end());
  for (const std::string& id : ids) {
    const auto found = std::ranges::find(suite, id, &Experiment::id);
    if (found == suite.end()) input_error("--only: the suite has no experiment {}", in_quotes(id));
    if (!found->from.empty()) wanted.insert(found->from);
  }
  std::erase_if(suite, [&](const Experiment& experiment) { return !wanted.contains(experiment.id); });
  return suite;
}

}  // namespace espalier
