// Experiments that look inside while a model answers: mask leakage, and where a drafter's attention falls. Their times
// mean nothing.
#pragma once

#include <functional>
#include <optional>

#include "experiments/experiment_result.h"
#include "experiments/suite_engine.h"

namespace espalier {

// Nothing: it was cancelled.
std::optional<ExperimentResult> probe_leakage(const PlannedExperiment& planned, OpenEngine& engine,
                                              const std::function<bool()>& cancelled);
// Loads the model once more, on a device that listens.
std::optional<ExperimentResult> profile_attention(const PlannedExperiment& planned, const OpenEngine& engine,
                                                  const std::function<bool()>& cancelled);

}  // namespace espalier
