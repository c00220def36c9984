// Experiments as files: what is asked of which prompts in which settings, which of the papers' tables it stands beside,
// and what to plot (docs/experiments.md). A value that knows nothing of models; the flags of settings are words here,
// and whoever runs them checks them. The reader believes nothing: an unknown key is refused like a wrong type, with
// file and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

enum class ExperimentKind {
  throughput,          // each turn with and without speculation, one right after the other
  sweep,               // with speculation against a baseline that all settings share
  stages,              // where the time of an earlier experiment's rounds went
  medusa,              // tokens per step, cost of a step, and their ratio, by length of the answer
  sensitivity,         // prompts made longer and longer
  attention_distance,  // how far back the drafter looks: a profile, no headline
  mask_leakage,        // whether a row's logits know of tokens it must not see
  quality,             // whether an earlier experiment's answers pass their tests
};
std::string_view name(ExperimentKind kind);

// Some prompts of a data set.
struct PromptSource {
  std::string data = {};  // a name of data/eval ("mt-bench", "humaneval"), or a path, relative to the experiment's file
  std::int64_t skip = 0;
  std::optional<std::int64_t> limit = {};
  bool whole_humaneval = false;  // --all-humaneval lifts the limit
};

// What a paper printed; a figure it does not give is null.
struct PaperTable {
  std::string source = {};
  std::vector<std::string> columns = {};
  struct Row {
    std::string figure = {};  // as result.json calls it: "speed_up"
    std::vector<std::optional<double>> values = {};
  };
  std::vector<Row> rows = {};
};

struct Setting {
  std::string name = {};  // a folder's name
  std::vector<std::string> flags = {};
  std::optional<std::int64_t> max_tokens = {};  // instead of the experiment's
};

enum class Growth { prompt, history, prefix };
std::string_view name(Growth growth);

// Prompts of chosen lengths, made of the texts of a data set (synthetic_prompts.h).
struct Lengthening {
  Growth what = Growth::prompt;
  std::vector<std::int64_t> lengths = {};  // tokens; of a history: turns before the one that counts
  std::int64_t prompts = 0;                // of each length
};

struct PlotPlan {
  std::string form = {};                  // "line", "bars", "distribution", "stages"
  std::vector<std::string> figures = {};  // of result.json
};

struct Experiment {
  std::filesystem::path file = {};
  std::string id = {};  // a folder's name
  std::string title = {};
  std::string about = {};  // what is compared with what, in a sentence or two
  ExperimentKind kind = ExperimentKind::throughput;
  std::vector<std::string> reproduces = {};  // "EAGLE-Pangu (arXiv 2603.08088), Table 1"
  std::vector<PaperTable> paper = {};
  std::vector<PromptSource> prompts = {};
  std::int64_t max_tokens = 256;
  std::optional<std::int64_t> full_max_tokens = {};  // with --full; nothing: 1024
  std::vector<std::string> drafters = {};  // "head", "eagle2", "eagle3", "medusa", "ngram"; one run of a setting each
  std::string axis = {};                   // what the settings differ in: "nodes"
  std::vector<std::string> flags = {};     // of all settings
  std::vector<Setting> settings = {};
  std::int64_t retimed_turns = 20;  // sweep: baseline turns that are timed again beside every setting
  std::string from = {};            // stages, quality: the experiment whose runs are looked at
  Lengthening lengthening = {};     // sensitivity
  std::int64_t rounds = 0;          // mask_leakage
  PlotPlan plot = {};

  // The most tokens of an answer.
  std::int64_t tokens(const Setting& setting, bool full) const;
};

// From a JSON object. `file` is where it came from. Throws InputError "FILE: key: ...".
Experiment experiment_from(const nlohmann::json& object, const std::filesystem::path& file);

// The experiments of a file, or of all *.json files of a folder in the order of their names. Ids are pairwise
// different, and `from` names an experiment that comes before.
std::vector<Experiment> read_suite(const std::filesystem::path& path);

// Those named, and those that they look at, in the suite's order. Throws InputError "--only: ...".
std::vector<Experiment> only(std::vector<Experiment> suite, const std::vector<std::string>& ids);

}  // namespace espalier
