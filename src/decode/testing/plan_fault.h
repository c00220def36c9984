// What holds of every plan of the scheduler, whatever the state: written down plainly, for tests.
#pragma once

#include <string>

#include "decode/scheduler.h"

namespace espalier {

// What is wrong with a plan for this state; empty when nothing is.
std::string plan_fault(const BatchState& state, const SchedulerLimits& limits, const BatchPlan& plan);

}  // namespace espalier
