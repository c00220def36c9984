#include "experiments/suite_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "decode/draft_tree.h"
#include "decode/drafter_names.h"
#include "engine/draft_plan.h"

namespace espalier {
namespace {

constexpr const char* kPaperSuite = "data/suites/paper";
constexpr const char* kPaperThroughput = "data/suites/paper/10-e1-throughput.json";
constexpr double kSecondsPerTest = 1.5;      // of a HumanEval answer, some of which run into their limit
constexpr double kProfileSlowdown = 3;       // of a run whose queries and keys are read back
constexpr std::int64_t kTokensPerTurn = 60;  // of a user's turn of MT-bench

std::filesystem::path suite_path(const std::string& suite, const Places& places) {
  if (suite != "paper") return suite;
  if (const auto found = places.find(kPaperSuite)) return *found;
  input_error("--suite paper: {} is not there", kPaperSuite);
}

std::string suite_name(const std::string& suite) {
  const std::filesystem::path path = std::filesystem::path(suite).lexically_normal();
  return path.has_filename() ? path.stem().string() : path.parent_path().filename().string();
}

std::filesystem::path data_path(const PromptSource& source, const Experiment& experiment, const Places& places) {
  static const std::map<std::string, std::string, std::less<>> kNames = {{"mt-bench", "data/eval/mt_bench.jsonl"},
                                                                         {"humaneval", "data/eval/humaneval.jsonl"}};
  const auto known = kNames.find(source.data);
  if (known == kNames.end()) return experiment.file.parent_path() / source.data;
  if (const auto found = places.find(known->second)) return *found;
  input_error("{}: prompts: {} is not there", experiment.file.string(), known->second);
}

PromptSet read_source(const PromptSource& source, const Experiment& experiment, const Places& places,
                      bool all_humaneval) {
  PromptSet set = read_prompt_set(data_path(source, experiment, places));
  const bool whole = !source.limit || (all_humaneval && source.whole_humaneval);
  keep_prompts(set, source.skip, whole ? INT64_MAX : *source.limit);
  return set;
}

PlannedPrompts read_prompts(const Experiment& experiment, const Places& places, bool all_humaneval) {
  PlannedPrompts prompts;
  for (const PromptSource& source : experiment.prompts) {
    PromptSet set = read_source(source, experiment, places, all_humaneval);
    for (const PromptSet& other : prompts.sets)
      if (other.files.front().set == set.files.front().set)
        input_error("{}: prompts: two data sets are called {}, expected different names", experiment.file.string(),
                    in_quotes(set.files.front().set));
    prompts.name += fmt::format("{}{}{}-{}", prompts.name.empty() ? "" : "+", set.files.front().set,
                                source.skip > 0 ? fmt::format("-{}", source.skip) : "", set.prompts.size());
    prompts.sets.push_back(std::move(set));
  }
  return prompts;
}

// The drafter of a run: "head" is what the user asked for, or auto's; another name is that drafter alone, with the
// user's head where the user asked for no other that has one.
void choose_drafter(const std::string& drafter, DraftOptions& options) {
  const std::string asked = options.draft.value_or("auto");
  options.draft = drafter == "head" ? asked : drafter;
  if (drafter == "head") return;
  const auto takes = [&](const std::string& name) {
    return name == drafter || (name == "eagle" && names_eagle(drafter));
  };
  const std::size_t plus = asked.find('+');
  const std::string first = asked.substr(0, plus), second = plus == std::string::npos ? "" : asked.substr(plus + 1);
  const bool asked_for_it = takes(first) ? second.empty() || second == "ngram" : first == "ngram" && takes(second);
  if (drafter != "ngram" && (asked == "auto" || asked_for_it)) return;
  options.heads.clear();
  options.head_options.clear();
  options.head_weights.reset();
}

class Planner {
 public:
  Planner(const EvalRequest& base, const SuiteRequest& suite) : base_(base), suite_(suite) {}

  PlannedExperiment plan(const Experiment& experiment) {
    PlannedExperiment planned{.experiment = experiment,
                              .prompts = read_prompts(experiment, base_.engine.places, suite_.all_humaneval),
                              .base_modes = base_.engine.modes};
    for (const std::string& drafter : experiment.drafters) add_runs(drafter, planned);
    planned.seconds = seconds_of(planned);
    return planned;
  }

 private:
  void add_runs(const std::string& drafter, PlannedExperiment& planned) const {
    const Experiment& experiment = planned.experiment;
    if (experiment.kind == ExperimentKind::sensitivity) {
      for (std::int64_t length : experiment.lengthening.lengths)
        planned.runs.push_back(plan_run(planned, {.name = std::to_string(length)}, 0, drafter, length));
      return;
    }
    if (experiment.settings.empty()) planned.runs.push_back(plan_run(planned, {.name = "all"}, 0, drafter, {}));
    for (std::size_t i = 0; i < experiment.settings.size(); ++i)
      planned.runs.push_back(plan_run(planned, experiment.settings[i], i, drafter, {}));
  }

  PlannedRun plan_run(const PlannedExperiment& planned, const Setting& setting, std::size_t index,
                      const std::string& drafter, std::optional<std::int64_t> length) const {
    const Experiment& experiment = planned.experiment;
    const std::string file = experiment.file.string();
    PlannedRun run{.name = setting.name, .drafter = drafter, .setting = setting, .length = length, .request = base_};
    if (experiment.drafters.size() > 1) run.name = fmt::format("{}-{}", drafter, run.name);
    choose_drafter(drafter, run.request.drafting);
    run.request = suite_.read_setting(std::move(run.request), experiment.flags, fmt::format("{}: flags", file));
    run.request =
        suite_.read_setting(std::move(run.request), setting.flags, fmt::format("{}: settings[{}].flags", file, index));
    run.request.text.generate.max_tokens = experiment.tokens(setting, suite_.full);
    run.request.baseline = experiment.kind != ExperimentKind::sweep;
    check_fixed(run, file);
    run.cost = cost_of(planned, run);
    return run;
  }

  // A budget that is chosen by the clock would not be the same in two runs.
  static void check_fixed(const PlannedRun& run, const std::string& file) {
    const DraftOptions& options = run.request.drafting;
    if (!options.nodes && options.tree.value_or("dynamic") == "dynamic")
      input_error("{}: setting {}: --draft-nodes N is missing, expected a fixed budget", file, run.setting.name);
  }

  RunCost cost_of(const PlannedExperiment& planned, const PlannedRun& run) const {
    const Experiment& experiment = planned.experiment;
    const TreeOptions tree = plan_tree(wish_for_tree(run.request.drafting, base_.engine.places)).options;
    RunCost cost{.turns = planned.prompts.turns(),
                 .tokens = run.request.text.generate.max_tokens,
                 .drafter = run.drafter == "head" ? "eagle3" : run.drafter,
                 .rows = max_rows(tree),
                 .depth = tree.depth};
    if (run.length) {
      const bool history = experiment.lengthening.what == Growth::history;
      cost.turns = experiment.lengthening.prompts * (history ? *run.length + 1 : 1);
      cost.prompt_tokens = history ? kTokensPerTurn : kTokensPerTurn + *run.length;
    }
    cost.plain_turns = run.request.baseline ? cost.turns : std::min(cost.turns, experiment.retimed_turns);
    return cost;
  }

  double seconds_of(const PlannedExperiment& planned) {
    const Experiment& experiment = planned.experiment;
    double seconds = 0;
    for (const PlannedRun& run : planned.runs) {
      if (experiment.kind == ExperimentKind::mask_leakage) {
        seconds += leakage_seconds(experiment, run.cost);
        continue;
      }
      if (experiment.kind == ExperimentKind::attention_distance) {
        RunCost alone = run.cost;
        alone.plain_turns = 0;
        seconds += kProfileSlowdown * estimate_seconds(alone);
        continue;
      }
      seconds += estimate_seconds(run.cost);
      if (experiment.kind == ExperimentKind::sweep && baselines_.insert(baseline_name(planned, run)).second)
        seconds += estimate_seconds({.turns = run.cost.turns, .tokens = run.cost.tokens});
    }
    if (experiment.kind == ExperimentKind::quality && suite_.confinement)
      seconds += kSecondsPerTest * (suite_.all_humaneval ? 164 : 80) * 2;
    return seconds;
  }

  // Each row once more, and the whole twice.
  static double leakage_seconds(const Experiment& experiment, const RunCost& cost) {
    return static_cast<double>(experiment.rounds) * (cost.rows + 2) * step_seconds(cost.rows + 4);
  }

  const EvalRequest& base_;
  const SuiteRequest& suite_;
  std::set<std::string> baselines_;
};

std::string minutes(double seconds) {
  return seconds == 0 ? "-" : fmt::format("{:.1f} min", seconds / 60);
}

std::string settings_text(const PlannedExperiment& planned) {
  if (!planned.experiment.from.empty()) return fmt::format("looks at {}", planned.experiment.from);
  std::string text;
  for (const PlannedRun& run : planned.runs) text += (text.empty() ? "" : ", ") + run.name;
  return text;
}

}  // namespace

std::int64_t PlannedPrompts::turns() const {
  std::int64_t all = 0;
  for (const PromptSet& set : sets) all += set.turns();
  return all;
}

bool PlannedExperiment::answers_turns() const {
  switch (experiment.kind) {
    case ExperimentKind::throughput:
    case ExperimentKind::sweep:
    case ExperimentKind::medusa:
    case ExperimentKind::sensitivity: return true;
    case ExperimentKind::stages:
    case ExperimentKind::attention_distance:
    case ExperimentKind::mask_leakage:
    case ExperimentKind::quality: return false;
  }
  return false;
}

double SuitePlan::seconds() const {
  double all = 0;
  for (const PlannedExperiment& planned : experiments) all += planned.seconds;
  return all;
}

SuitePlan plan_suite(const EvalRequest& base, const SuiteRequest& request) {
  if (base.drafting.draft == "none") throw InputError("--draft none: not with --suite, which measures drafters");
  SuitePlan plan{.name = suite_name(request.suite)};
  Planner planner(base, request);
  for (const Experiment& experiment : only(read_suite(suite_path(request.suite, base.engine.places)), request.only))
    plan.experiments.push_back(planner.plan(experiment));
  return plan;
}

std::string baseline_name(const PlannedExperiment& planned, const PlannedRun& run) {
  return fmt::format("{}-{}{}", planned.prompts.name, run.request.text.generate.max_tokens,
                     run.request.text.ignore_eos ? "-ignore-eos" : "");
}

std::string plan_text(const SuitePlan& plan) {
  std::string text;
  for (const PlannedExperiment& planned : plan.experiments) {
    std::int64_t turns = 0;
    for (const PlannedRun& run : planned.runs) turns += run.cost.turns;
    const std::string work = planned.experiment.rounds > 0 ? fmt::format("{} rounds", planned.experiment.rounds)
                                                           : fmt::format("{} turns", turns);
    text += fmt::format("{:<15} {:<19} {:>12} {:>9}  {}\n", planned.experiment.id, name(planned.experiment.kind),
                        planned.experiment.from.empty() ? work : "", minutes(planned.seconds), settings_text(planned));
  }
  return text + fmt::format("at most about {} for the default model on two cores\n", duration_text(plan.seconds()));
}

std::vector<PaperTable> paper_throughput(const Places& places) {
  const auto file = places.find(kPaperThroughput);
  return file ? read_suite(*file).front().paper : std::vector<PaperTable>{};
}

}  // namespace espalier
