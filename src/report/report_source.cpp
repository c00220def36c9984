#include "report/report_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "eval/run_folder.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kSuite = "suite.json";
constexpr const char* kResult = "result.json";
constexpr const char* kTrace = "trace.jsonl.zst";

// Checked, and then once more for the order of its fields.
Json read_object(const Path& file) {
  const std::string text = read_text_file(file);
  if (!parse_json(text, file.string()).is_object()) input_error("{}: expected a JSON object", file.string());
  return Json::parse(text);
}

std::vector<Path> sorted_entries(const Path& folder) {
  std::vector<Path> entries;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

ReportRun read_run(const Path& path, std::string label) {
  ReportRun run{.label = std::move(label), .path = path, .turns = read_finished_turns(path)};
  run.manifest = read_object(path / kManifest).dump(2);
  for (const Path& rank : sorted_entries(path / "ranks"))
    if (std::filesystem::exists(rank / kTrace)) run.traces.push_back(rank / kTrace);
  run.dumps = sorted_entries(path / "dumps");
  return run;
}

std::optional<std::string> text_at(const nlohmann::json& object, const char* name) {
  const auto& value = object.at(name);
  return value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
}

PaperTable paper_from(const nlohmann::json& object) {
  PaperTable table{.source = object.at("source").get<std::string>(),
                   .columns = object.at("columns").get<std::vector<std::string>>()};
  for (const auto& [figure, list] : object.at("rows").items()) {
    PaperTable::Row row{.figure = figure};
    for (const auto& value : list)
      row.values.push_back(value.is_null() ? std::nullopt : std::optional(value.get<double>()));
    row.values.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  return table;
}

SettingResult setting_from(const nlohmann::json& object, std::string_view where) {
  SettingResult setting{.name = object.at("name").get<std::string>(),
                        .drafter = object.at("drafter").get<std::string>(),
                        .flags = object.at("flags").get<std::vector<std::string>>(),
                        .run = text_at(object, "run").value_or("")};
  setting.identity = identity_from(object.at("identical"), where);
  if (!object.at("figures").is_object()) input_error("{}: figures: expected an object", where);
  setting.figures = object.at("figures").dump();
  return setting;
}

// A folder's name, nothing that leads elsewhere.
bool is_name(const std::string& text) {
  return !text.empty() && text != "." && text != ".." && text.find('/') == std::string::npos;
}

// Inside the suite: no way up and out.
bool stays_inside(const Path& path) {
  return path.is_relative() && std::ranges::none_of(path, [](const Path& part) { return part == ".."; });
}

// Those that suite.json names, in its order, then whatever else has a result.
std::vector<std::string> experiment_names(const Path& suite, const Json& facts) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (is_name(name) && std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  const Json& listed = facts.contains("experiments") ? facts["experiments"] : Json();
  if (listed.is_array())
    for (const Json& entry : listed) {
      if (entry.is_string()) add(entry.get<std::string>());
      if (entry.is_object() && entry.contains("id") && entry["id"].is_string()) add(entry["id"].get<std::string>());
    }
  for (const Path& entry : sorted_entries(suite))
    if (std::filesystem::exists(entry / kResult)) add(entry.filename().string());
  return names;
}

// The runs that settings stand for; two experiments may look at one.
void read_suite_runs(ReportSource& source, const std::string& prefix) {
  std::set<std::string> known;
  for (const ReportExperiment& experiment : source.experiments)
    for (const SettingResult& setting : experiment.settings) {
      if (setting.run.empty() || !known.insert(setting.run).second) continue;
      const Path path = source.path / setting.run;
      if (!stays_inside(setting.run))
        input_error("{}: {}: the run is outside of the suite", source.path.string(), path.string());
      source.runs.push_back(read_run(path, prefix + setting.run));
    }
}

ReportSource read_suite_source(const Path& path, const std::string& label, bool several) {
  const Json facts = read_object(path / kSuite);
  ReportSource source{.label = label, .path = path, .suite = true, .suite_facts = facts.dump(2)};
  for (const std::string& name : experiment_names(path, facts)) {
    const Path file = path / name / kResult;
    if (!std::filesystem::exists(file)) {
      source.missing.push_back(name);
      continue;
    }
    source.experiments.push_back(
        report_experiment_from(parse_json(read_text_file(file), file.string()), file.string()));
  }
  if (source.experiments.empty()) input_error("{}: no experiment has a result yet", path.string());
  read_suite_runs(source, several ? label + "/" : "");
  return source;
}

// The last part of its path, with a number where another has the same.
std::string label_of(const Path& path, std::set<std::string>& taken) {
  const std::string name = path.filename().string();
  std::string label = name;
  for (int i = 2; !taken.insert(label).second; ++i) label = fmt::format("{} ({})", name, i);
  return label;
}

Path without_slash(const Path& path) {
  const Path normal = path.lexically_normal();
  return normal.has_filename() && normal != "." ? normal
                                                : std::filesystem::absolute(normal).lexically_normal().parent_path();
}

// How many conversations a run answered at once. Runs of earlier versions do not say it.
std::int64_t parallel_of(const ReportRun& run) {
  const Json manifest = Json::parse(run.manifest);
  const Json::json_pointer place("/configuration/parallel");
  const bool known = manifest.contains(place) && manifest.at(place).is_number_integer();
  return known ? manifest.at(place).get<std::int64_t>() : 1;
}

// Seconds in company do not compare with others.
void check_same_parallel(const std::vector<ReportSource>& sources) {
  const ReportRun* first = nullptr;
  for (const ReportSource& source : sources)
    for (const ReportRun& run : source.runs) {
      if (first == nullptr) first = &run;
      if (parallel_of(run) != parallel_of(*first))
        input_error("{}: a run with --parallel {}, expected {} as in {}", run.path.string(), parallel_of(run),
                    parallel_of(*first), first->path.string());
    }
}

}  // namespace

ReportExperiment report_experiment_from(const nlohmann::json& object, std::string_view where) {
  ReportExperiment experiment;
  reading("the result of an experiment", where, [&] {
    if (object.at("kind") != "experiment" || object.at("schema") != 1)
      input_error("{}: expected the result of an experiment of schema 1", where);
    experiment.id = object.at("id").get<std::string>();
    experiment.title = object.at("title").get<std::string>();
    experiment.about = object.at("about").get<std::string>();
    experiment.kind = object.at("experiment").get<std::string>();
    experiment.reproduces = object.at("reproduces").get<std::vector<std::string>>();
    experiment.axis = text_at(object, "axis").value_or("setting");
    experiment.skipped = text_at(object, "skipped");
    experiment.failure = text_at(object, "failure");
    experiment.profile = object.at("profile").get<bool>();
    for (const auto& setting : object.at("settings")) experiment.settings.push_back(setting_from(setting, where));
    for (const auto& table : object.at("paper")) experiment.paper.push_back(paper_from(table));
    experiment.plot = {object.at("plot").at("form").get<std::string>(),
                       object.at("plot").at("figures").get<std::vector<std::string>>()};
  });
  return experiment;
}

std::vector<ReportSource> read_sources(const std::vector<Path>& paths) {
  std::vector<ReportSource> sources;
  std::set<std::string> labels;
  for (const Path& given : paths) {
    const Path path = without_slash(given);
    if (!std::filesystem::is_directory(path))
      input_error("{}: no such directory, expected that of a run or a suite", given.string());
    const std::string label = label_of(path, labels);
    if (std::filesystem::exists(path / kSuite)) {
      sources.push_back(read_suite_source(path, label, paths.size() > 1));
      continue;
    }
    if (!std::filesystem::exists(path / kManifest))
      input_error("{}: neither {} nor {}, expected the directory of a run or a suite", given.string(), kManifest,
                  kSuite);
    sources.push_back({.label = label, .path = path, .runs = {read_run(path, label)}});
  }
  check_same_parallel(sources);
  return sources;
}

const ReportRun* run_of(const ReportSource& source, const SettingResult& setting) {
  const auto found = std::ranges::find(source.runs, source.path / setting.run, &ReportRun::path);
  return setting.run.empty() || found == source.runs.end() ? nullptr : &*found;
}

}  // namespace espalier
