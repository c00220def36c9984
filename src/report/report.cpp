#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>

#include "report/experiment_section.h"
#include "report/markdown.h"
#include "report/markup.h"
#include "report/page.h"
#include "report/run_traces.h"
#include "report/stage_section.h"
#include "report/throughput_section.h"
#include "report/turn_list.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

std::string pretty(const Json& object) {
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// A text or a number somewhere in a manifest; empty where it is not there.
std::string text_of_field(const Json& manifest, const char* pointer) {
  const Json::json_pointer field(pointer);
  if (!manifest.contains(field)) return "";
  const Json& value = manifest[field];
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "" : value.dump();
}

std::vector<std::string> experiment_ids(const std::vector<ReportSource>& sources) {
  std::vector<std::string> ids;
  for (const ReportSource& source : sources)
    for (const ReportExperiment& experiment : source.experiments)
      if (std::ranges::find(ids, experiment.id) == ids.end()) ids.push_back(experiment.id);
  return ids;
}

// The slug of an experiment, with a number behind it where the page or another experiment has the same.
std::string section_id(const std::string& experiment, std::set<std::string>& taken) {
  const std::string name = slug(experiment);
  std::string id = name;
  for (int i = 2; !taken.insert(id).second; ++i) id = fmt::format("{}-{}", name, i);
  return id;
}

Table configuration_table(const std::vector<ReportSource>& sources) {
  Table table{.id = "configuration",
              .columns = {"run", "model", "drafters", "rows", "device", "threads", "most tokens", "start", "commit"}};
  for (const ReportSource& source : sources)
    for (const ReportRun& run : source.runs) {
      const Json manifest = Json::parse(run.manifest);
      const auto field = [&](const char* pointer) { return text_cell(text_of_field(manifest, pointer)); };
      const std::filesystem::path model = text_of_field(manifest, "/configuration/model/path");
      table.add({text_cell(run.label), text_cell(model.filename().string()), field("/configuration/draft/drafters"),
                 field("/configuration/draft/nodes"), field("/configuration/engine/isa"),
                 field("/configuration/engine/threads"), field("/configuration/sampling/max_tokens"), field("/start"),
                 text_cell(text_of_field(manifest, "/commit").substr(0, 12))});
    }
  return table;
}

class ReportWriter {
 public:
  ReportWriter(const std::vector<ReportSource>& sources, const ReportOptions& options, const ReportFolder& folder)
      : sources_(sources), options_(options), folder_(folder) {}

  Losslessness write() {
    page_.title = title();
    page_.lossless = losslessness_of(sources_);
    page_.turns = turn_table(sources_);
    page_.configuration = configuration_table(sources_);
    read_traces();
    add_runs();
    add_experiments();
    add_facts();
    write_files();
    return page_.lossless;
  }

 private:
  std::string title() const {
    std::string labels;
    for (const ReportSource& source : sources_) labels += (labels.empty() ? "" : ", ") + source.label;
    return "Espalier: " + labels;
  }

  // Each turn's trees go into the page as long as there is room, then into files of their own.
  void read_traces() {
    for (const ReportSource& source : sources_)
      for (const ReportRun& run : source.runs) {
        const std::size_t first = page_.marks.size();
        for (const TurnRecord& turn : run.turns)
          page_.marks.push_back({.wrong = turn.error || turn.first_difference()});
        const auto sink = [&](std::size_t turn, const Json& data) { add_trees(first + turn, data); };
        const Json configuration = Json::parse(run.manifest).value("configuration", Json());
        const RunTraces traces =
            read_run_traces(run, run.traces.empty() ? TokenWords{} : options_.words(configuration), sink);
        note_traces(run, traces);
        if (!source.suite && traces.stages.rounds() > 0) stages_.push_back({run.label, traces.stages.to_json()});
      }
  }

  void add_trees(std::size_t turn, const Json& data) {
    PageTurn& mark = page_.marks[turn];
    mark.traced = true;
    std::string json = script_json(data);
    if (embedded_ + json.size() <= options_.embedded_bytes) {
      embedded_ += json.size();
      mark.embedded = std::move(json);
    } else {
      folder_.add(fmt::format("turns/{}.js", turn + 1), fmt::format("espalierTurn({}, {});\n", turn + 1, json));
    }
  }

  void note_traces(const ReportRun& run, const RunTraces& traces) {
    traced_ += traces.traced;
    agreeing_ += traces.agreeing;
    if (traces.disagreement) page_.failures.push_back(run.label + ": " + *traces.disagreement);
  }

  // Runs that belong to no suite stand side by side.
  void add_runs() {
    std::deque<Json> figures;  // where they stay while the runs refer to them
    std::vector<MeasuredRun> runs;
    for (const ReportSource& source : sources_) {
      if (source.suite) continue;
      const std::vector<TurnRecord>& turns = source.runs[0].turns;
      runs.push_back({source.label, figures.emplace_back(run_figures(turns)), turns});
    }
    if (runs.empty()) return;
    ReportSection section{.id = "runs", .title = runs.size() == 1 ? "The run" : "The runs side by side"};
    for (const PaperTable& table : options_.paper) section.words.push_back("Paper: " + table.source + ".");
    add_throughput(runs, options_.paper, section);
    add_stages(stages_, section);
    page_.sections.push_back(std::move(section));
  }

  void add_experiments() {
    std::set<std::string> taken(std::begin(kPageIds), std::end(kPageIds));
    for (const std::string& id : experiment_ids(sources_))
      page_.sections.push_back(experiment_section(id, section_id(id, taken), sources_));
  }

  void add_facts() {
    if (traced_ > 0)
      page_.words.push_back(
          fmt::format("{} of {} turns have a trace; tokens, rounds, judged guesses and seconds of {} of them are those "
                      "of the trace.",
                      traced_, page_.marks.size(), agreeing_));
    for (const ReportSource& source : sources_) {
      if (!source.missing.empty())
        page_.words.push_back(
            fmt::format("{}: without a result yet: {}.", source.label, fmt::join(source.missing, ", ")));
      if (source.suite) page_.manifests.push_back({source.label + ": the suite", source.suite_facts});
      for (const ReportRun& run : source.runs) page_.manifests.push_back({run.label, run.manifest});
    }
  }

  void write_table(const Table& table) const {
    folder_.add("tables/" + table.id + ".csv", to_csv(table));
    folder_.add("tables/" + table.id + ".json", pretty(to_json(table)));
  }

  void write_files() const {
    Json sections = Json::array();
    for (const ReportSection& section : page_.sections) {
      Json tables = Json::array(), figures = Json::array();
      for (const Table& table : section.tables) {
        write_table(table);
        tables.push_back(table.id);
      }
      for (const Chart& chart : section.charts) {
        folder_.add("figures/" + chart.id + ".svg", chart_document(chart));
        folder_.add("figures/" + chart.id + ".csv", to_csv(chart));
        folder_.add("figures/" + chart.id + ".json", pretty(to_json(chart)));
        figures.push_back(chart.id);
      }
      sections.push_back({{"id", section.id}, {"title", section.title}, {"tables", tables}, {"figures", figures}});
    }
    write_table(page_.turns);
    write_table(page_.configuration);
    folder_.add("index.html", page_html(page_));
    folder_.add("tables.md", page_markdown(page_));
    folder_.add(kReportFile, pretty({{"kind", "report"},
                                     {"schema", kSchema},
                                     {"version", program_version()},
                                     {"identical", to_json(page_.lossless)},
                                     {"sources", sources_json()},
                                     {"sections", sections}}));
  }

  Json sources_json() const {
    Json list = Json::array();
    for (const ReportSource& source : sources_)
      list.push_back({{"label", source.label}, {"path", source.path.string()}, {"suite", source.suite}});
    return list;
  }

  const std::vector<ReportSource>& sources_;
  const ReportOptions& options_;
  const ReportFolder& folder_;
  Page page_;
  NamedLists stages_;
  std::size_t embedded_ = 0;
  std::int64_t traced_ = 0, agreeing_ = 0;
};

}  // namespace

Losslessness write_report(const std::vector<ReportSource>& sources, const ReportOptions& options,
                          const ReportFolder& folder) {
  return ReportWriter(sources, options, folder).write();
}

}  // namespace espalier
