// The runs of an experiment, each answered into a folder of its own, and what they say together. One loaded model
// serves them all; a run that is finished already is only read.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "cli/eval_run.h"
#include "cli/eval_suite_engine.h"
#include "experiments/experiment_result.h"

namespace espalier {

class SuiteRuns {
 public:
  // Both must outlive this. `announce` hears what is about to be answered.
  SuiteRuns(std::filesystem::path folder, Engine& engine, std::function<bool()> cancelled,
            std::function<void(const std::string& run, double seconds)> announce);

  // Throughput, sweep, medusa and sensitivity. Nothing: it was cancelled.
  std::optional<ExperimentResult> measure(const PlannedExperiment& planned);

 private:
  std::optional<EvalOutcome> answer(EvalFlags flags, const PromptSet& data, const std::string& place, double seconds);
  // The folder of answers without speculation that sweeps over these prompts share. Nothing: it was cancelled.
  std::optional<std::filesystem::path> baseline(const PlannedExperiment& planned, const PlannedRun& run);
  PromptSet grown_prompts(const PlannedExperiment& planned, const PlannedRun& run, EvalFlags& flags) const;
  PromptSet prompts_of(const PlannedExperiment& planned, const PlannedRun& run, EvalFlags& flags) const;
  std::optional<SettingResult> measure(const PlannedExperiment& planned, const PlannedRun& run,
                                       const std::string& drafter);

  std::filesystem::path folder_;
  Engine& engine_;
  std::function<bool()> cancelled_;
  std::function<void(const std::string& run, double seconds)> announce_;
};

}  // namespace espalier
