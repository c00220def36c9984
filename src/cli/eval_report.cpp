#include "cli/eval_report.h"

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/environment.h"
#include "cli/output.h"
#include "engine/recorded_run.h"
#include "text/model_text.h"
#include "text/token_text.h"

namespace espalier {
namespace {

constexpr const char* kPaperThroughput = "data/suites/paper/10-e1-throughput.json";

// Tokenizers of the models that runs name, each read once. Runs whose model is gone show ids.
class ModelWords {
 public:
  explicit ModelWords(std::string given) : given_(std::move(given)) {}

  TokenWords operator()(const nlohmann::ordered_json& configuration) {
    TokenWords words{.drafters = recorded_drafters(configuration)};
    if (const ModelText* text = text_of_run(configuration))
      words.word = [text](std::int32_t token) {
        const bool known = token < text->tokenizer->vocabulary_size();
        return known ? quoted_token(text->tokenizer->bytes(token, false)) : std::to_string(token);
      };
    return words;
  }

 private:
  const ModelText* text_of_run(const nlohmann::ordered_json& configuration) {
    try {
      const std::filesystem::path path = recorded_model(configuration, given_, "manifest.json", cache_);
      auto& text = texts_[path];
      if (!text) text = std::make_unique<ModelText>(load_model_text(path));
      return text.get();
    } catch (const InputError&) {
      if (!given_.empty()) throw;
      return nullptr;
    }
  }

  std::string given_;
  std::optional<std::filesystem::path> cache_ = user_cache_folder(process_environment);
  std::map<std::filesystem::path, std::unique_ptr<ModelText>> texts_;
};

// What the paper printed of throughput, for runs that are not part of a suite.
std::vector<PaperTable> paper_throughput() {
  const auto file = process_places().find(kPaperThroughput);
  return file ? read_suite(*file).front().paper : std::vector<PaperTable>{};
}

// How many conversations a run answered at once. Runs of earlier versions do not say it.
std::int64_t parallel_of(const ReportRun& run) {
  const auto manifest = nlohmann::json::parse(run.manifest);
  const nlohmann::json::json_pointer place("/configuration/parallel");
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

void add_report_flags(CLI::App& app, ReportFlags& flags) {
  app.add_option("runs", flags.runs, "directories of finished runs and of suites")->required()->type_name("RUN");
  app.add_option("-o,--out", flags.out, "the directory of the report, which must not exist yet")
      ->required()
      ->type_name("DIR");
  app.add_flag("--force", flags.force, "replace an earlier report in DIR");
  app.add_option("--embed", flags.embed, "bytes of trees inside the page; further ones lie in files beside it")
      ->capture_default_str()
      ->type_name("BYTES");
  app.add_option("--model", flags.model, "take the words of tokens from this model instead of the runs' own")
      ->type_name("PATH");
}

int run_report(const ReportFlags& flags) {
  ReportFolder folder(flags.out, flags.force);
  const std::vector<ReportSource> sources = read_sources({flags.runs.begin(), flags.runs.end()});
  check_same_parallel(sources);
  const auto words = std::make_shared<ModelWords>(flags.model);
  ReportOptions options{.paper = paper_throughput(), .embedded_bytes = flags.embed};
  options.words = [words](const nlohmann::ordered_json& configuration) { return (*words)(configuration); };
  const Losslessness lossless = write_report(sources, options, folder);
  folder.publish();
  std::string shown = losslessness_text(lossless) + "\n";
  for (const std::string& failure : lossless.failures) shown += failure + "\n";
  print(shown + (std::filesystem::path(flags.out) / "index.html").string() + "\n");
  flush_output();
  return lossless.holds() ? 0 : 1;
}

}  // namespace espalier
