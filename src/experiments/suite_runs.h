// The runs of an experiment, each answered into a folder of its own, and what they say together. One loaded model
// serves them all; a run that is finished already is only read. Of several ranks, rank 0 begins the runs and measures;
// the others take part in what it has begun.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluation.h"
#include "experiments/experiment_result.h"
#include "experiments/suite_engine.h"
#include "experiments/suite_ranks.h"

namespace espalier {

class SuiteRuns {
 public:
  // All must outlive this. `announce` hears what rank 0 is about to answer.
  SuiteRuns(std::filesystem::path folder, OpenEngine& engine, SuiteRanks& ranks,
            std::function<void(const std::string& run, double seconds)> announce = {},
            EvalListener* listener = nullptr);

  // Rank 0: throughput, sweep, medusa and sensitivity. Nothing: it was cancelled.
  std::optional<ExperimentResult> measure(const PlannedExperiment& planned);
  // Another rank: its share of each run that rank 0 begins, until `ended`. False: it was cancelled.
  bool follow(const PlannedExperiment& planned, const std::function<bool()>& ended);

 private:
  // A run that there may be, and how this rank takes part in it; false: cancelled.
  struct Share {
    std::string place = {};
    std::function<bool()> answer = {};
  };

  bool has_begun(const std::string& place) const;
  std::vector<Share> shares_of(const PlannedExperiment& planned);
  std::optional<EvalOutcome> answer(EvalRequest request, const PromptSet& data, const std::string& place,
                                    double seconds);
  // Without speculation, which sweeps over these prompts share.
  std::optional<EvalOutcome> answer_baseline(const PlannedExperiment& planned, const PlannedRun& run);
  std::optional<EvalOutcome> answer_setting(const PlannedExperiment& planned, const PlannedRun& run);
  PromptSet grown_prompts(const PlannedExperiment& planned, const PlannedRun& run, EvalRequest& request) const;
  PromptSet prompts_of(const PlannedExperiment& planned, const PlannedRun& run, EvalRequest& request) const;
  std::optional<SettingResult> measure(const PlannedExperiment& planned, const PlannedRun& run,
                                       const std::string& drafter);

  std::filesystem::path folder_;
  OpenEngine& engine_;
  SuiteRanks& ranks_;
  std::function<void(const std::string& run, double seconds)> announce_;
  EvalListener* listener_;
};

}  // namespace espalier
