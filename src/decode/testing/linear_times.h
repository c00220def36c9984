// For tests of budgets: a machine on which every further row costs the same.
#pragma once

#include "decode/step_times.h"

namespace espalier {

// Steps of n rows take 1 + slope (n - 1) seconds, whatever the context.
inline StepTimes linear_times(double slope) {
  return {.rows = {1, 64}, .contexts = {64}, .seconds = {1, 1 + 63 * slope}};
}

}  // namespace espalier
