// A suite as the list of its runs: which prompts, which flags, about how long. Nothing is loaded here and nothing
// written, so a mistake in a suite is told before a model is read.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/manifest.h"
#include "eval/prompt_set.h"
#include "experiments/cost_estimate.h"
#include "experiments/sandbox.h"
#include "experiments/suite_file.h"

namespace espalier {

// What the words of a setting in a suite's file make of a request: they are flags of `eval run`, which the application
// knows. Throws InputError "where: ..." for words it does not take.
using SettingReader =
    std::function<EvalRequest(EvalRequest request, std::span<const std::string> words, const std::string& where)>;

// What a suite is asked for.
struct SuiteRequest {
  std::string suite = {};  // "paper", a file or a folder
  std::vector<std::string> only = {};
  bool full = false;
  bool all_humaneval = false;
  std::optional<Confinement> confinement = {};  // how the code of answers is run; nothing: it is not
  SettingReader read_setting = {};
};

// Prompts of a data set, as a run reads them.
struct PlannedPrompts {
  std::string name = {};  // of the folder that holds them: "mt_bench-20"
  std::vector<PromptSet> sets = {};

  std::int64_t turns() const;
};

struct PlannedRun {
  std::string name = {};     // of its folder
  std::string drafter = {};  // "head", "eagle2", "eagle3", "medusa", "ngram"
  Setting setting = {};
  std::optional<std::int64_t> length = {};  // sensitivity: of the prompts
  EvalRequest request = {};                 // without data and folder
  RunCost cost = {};
};

struct PlannedExperiment {
  Experiment experiment = {};
  PlannedPrompts prompts = {};
  std::vector<PlannedRun> runs = {};
  ModeRequest base_modes = {};  // of the suite, without those of settings
  double seconds = 0;

  // Whether its runs leave turns, of which every rank answers its share; what others do, rank 0 does alone.
  bool answers_turns() const;
};

struct SuitePlan {
  std::string name = {};
  std::vector<PlannedExperiment> experiments = {};

  double seconds() const;
};

// Throws InputError: a suite, a setting's flags or a data set that cannot be read.
SuitePlan plan_suite(const EvalRequest& base, const SuiteRequest& request);

// The name under which prompts and answers without speculation are shared by experiments: "mt_bench-20-256".
std::string baseline_name(const PlannedExperiment& planned, const PlannedRun& run);

// What --dry-run prints.
std::string plan_text(const SuitePlan& plan);

// What the paper printed of throughput, to stand beside runs that are part of no suite; none where its suite is not
// there.
std::vector<PaperTable> paper_throughput(const Places& places);

}  // namespace espalier
