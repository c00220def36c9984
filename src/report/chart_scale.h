// Numbers on an axis: where they stand, and which of them are written. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace espalier {

// From values to pixels. Requires low < high.
struct Scale {
  double low = 0, high = 1;
  double from = 0, to = 1;

  double at(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// Round numbers (1, 2 or 5 times a power of ten apart) that enclose [low, high], about `count` steps of them. Values
// that are not finite or that lie in the wrong order give 0 and 1.
std::vector<double> round_ticks(double low, double high, int count);

// With as many decimals as tell `step` apart; a share is written in percent.
std::string tick_text(double value, double step, bool percent);

}  // namespace espalier
