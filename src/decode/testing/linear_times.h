// For tests of budgets: a machine on which every further row costs the same.
#pragma once

#include <vector>

#include "decode/budget.h"
#include "decode/step_times.h"

namespace espalier {

// Steps of n rows take 1 + slope (n - 1) seconds, whatever the context.
inline StepTimes linear_times(double slope) {
  return {.rows = {1, 64}, .contexts = {64}, .seconds = {1, 1 + 63 * slope}};
}
// The seconds of steps of 1 to `rows` rows of it.
inline std::vector<double> line_times(double slope, int rows) {
  std::vector<double> times;
  for (int n = 0; n < rows; ++n) times.push_back(1 + slope * n);
  return times;
}

// Of a round of drafters that have lately won: they are trusted with any tree.
inline RoundShape winning(int roots = 1) {
  return {.roots = roots, .context = 100, .wins = true};
}

}  // namespace espalier
