// What something usually takes: a running mean, in which what something delayed counts for little. A value.
#pragma once

#include <algorithm>

namespace espalier {

class UsualSeconds {
 public:
  bool known() const { return mean_ > 0; }
  double mean() const { return mean_; }  // 0: nothing is known yet

  // memory: over so many of the last ones, about.
  void note(double seconds, double memory) {
    if (!known()) mean_ = seconds;
    mean_ += (undelayed(seconds) - mean_) / memory;
  }
  // At most four times the mean, where it is known.
  double undelayed(double seconds) const { return known() ? std::min(seconds, kMostDelayed * mean_) : seconds; }

 private:
  static constexpr double kMostDelayed = 4;

  double mean_ = 0;
};

}  // namespace espalier
