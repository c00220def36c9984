// What a report is about, read from disk: directories of runs (docs/eval.md) and of suites (docs/experiments.md). Plain
// values. Whoever reads believes nothing: what is no such directory is told in one line.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/turn_record.h"
#include "experiments/experiment_result.h"
#include "experiments/suite_file.h"

namespace espalier {

struct ReportRun {
  std::string label = {};  // unique in a report
  std::filesystem::path path = {};
  std::string manifest = "{}";  // manifest.json, indented for readers
  std::vector<TurnRecord> turns = {};
  std::vector<std::filesystem::path> traces = {};  // by rank
  std::vector<std::filesystem::path> dumps = {};
};

// An experiment's result.json.
struct ReportExperiment {
  std::string id = {};
  std::string title = {};
  std::string about = {};
  std::string kind = {};  // as name(ExperimentKind) says it
  std::vector<std::string> reproduces = {};
  std::string axis = {};
  std::optional<std::string> skipped = {};
  std::optional<std::string> failure = {};
  bool profile = false;
  std::vector<SettingResult> settings = {};
  std::vector<PaperTable> paper = {};
  PlotPlan plot = {};
};

// Throws InputError "where: ...".
ReportExperiment report_experiment_from(const nlohmann::json& object, std::string_view where);

struct ReportSource {
  std::string label = {};
  std::filesystem::path path = {};
  bool suite = false;
  std::string suite_facts = "{}";                  // suite.json, likewise
  std::vector<ReportExperiment> experiments = {};  // of a suite, in its order
  std::vector<std::string> missing = {};           // experiments of the suite that have no result yet
  std::vector<ReportRun> runs = {};                // the run itself, or those behind a suite's settings
};

// Throws InputError where a path is neither a finished run nor a suite, and where runs answered different numbers of
// conversations at once.
std::vector<ReportSource> read_sources(const std::vector<std::filesystem::path>& paths);

// The run behind a setting of the source's suite; nothing where it has none.
const ReportRun* run_of(const ReportSource& source, const SettingResult& setting);

}  // namespace espalier
