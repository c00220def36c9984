// What guesses have lately been worth, by which it is known without drafting what drafting would bring to a company of
// any size. Remembered is the chance of the best first guess of each of the last rounds, after calibration: of those
// that many answers have together the best are verified, so it counts how they are spread. A level behind is taken to
// look like the one above it. One thread at a time; the functions are pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace espalier {

class GuessWorth {
 public:
  // Before anything was seen: what a usual drafter says. It is forgotten as the oldest that was learned.
  GuessWorth();

  // The chance of the best first guess of a round, 0 where there was none. times: it stands for so many rounds.
  void learn(double chance, int times = 1);

  double mean() const;
  // Of so many answers: what their best first guesses are expected to be, the best first.
  std::vector<double> expected(int answers) const;

 private:
  std::vector<double> chances_;  // at most 128
  std::size_t oldest_ = 0;       // once there are so many
};

// What a company of `roots` answers pays.
struct DraftPrices {
  std::span<const double> step_seconds = {};  // [n - 1]: of a step of n rows
  int roots = 1;
  double first_level = 0, further_level = 0;  // seconds of a draft pass for all of them
};

// The tokens per second with the best number of levels and rows, over those without drafting. chances: of each answer's
// best first guess, the best first. At least one level is paid for, so it may be below 1.
double drafting_gain(std::span<const double> chances, const DraftPrices& prices);

}  // namespace espalier
