// Seconds between two readings of a clock that was handed in: of everything since the start, and lap by lap.
#pragma once

#include <utility>

#include "decode/step_times.h"

namespace espalier {

class Stopwatch {
 public:
  // The clock must outlive this.
  explicit Stopwatch(const SecondsClock& clock) : clock_(&clock), start_(clock()), lap_(start_) {}

  double seconds() const { return (*clock_)() - start_; }
  // Since the last lap, or the start.
  double lap() {
    const double now = (*clock_)();
    return now - std::exchange(lap_, now);
  }

 private:
  const SecondsClock* clock_;
  double start_;
  double lap_;
};

}  // namespace espalier
