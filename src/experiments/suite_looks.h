// Experiments that look at the runs of an earlier one: where the time of its rounds went, and whether its answers pass
// their tests.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "experiments/experiment_result.h"
#include "experiments/sandbox.h"
#include "experiments/suite_plan.h"

namespace espalier {

// A run of the earlier experiment.
struct FinishedRun {
  std::string name = {};
  std::string drafter = {};
  std::string place = {};  // its folder inside the suite's
  std::filesystem::path folder = {};
  std::vector<TurnRecord> turns = {};
};

// From the traces of the runs.
ExperimentResult stage_times(std::span<const FinishedRun> runs);

// HumanEval pass@1 of the answers without and with speculation. `problems`: data sets that may hold HumanEval's tests;
// `text_of`: an answer's tokens as text. An answer that is the same with and without is run once. Nothing: it was
// cancelled.
struct QualityOptions {
  std::optional<Confinement> confinement = {};  // nothing: no code is run
  std::vector<std::filesystem::path> problems = {};
  std::function<std::string(const std::vector<std::int32_t>&)> text_of = {};
  std::function<bool()> cancelled = {};
};
std::optional<ExperimentResult> pass_at_1(std::span<const FinishedRun> runs, const QualityOptions& options);

}  // namespace espalier
