// How large the trees of a round that stays on the device are (resident_rounds.h): that has to be said before anything
// is guessed. What guesses bring is known from rounds before, as the mean chance of the m-th best guess of those in the
// first d levels; what levels cost, as what rounds took beyond the teacher's step. Rows M and levels d are chosen for
// the largest
//
//   (1 + sum of the first M - 1 chances) / (d * seconds of a level + seconds of a step of all trees' rows)
//
// A device keeps a recording of each shape, so another one is taken only where it is clearly better, and rows come in
// steps. Now and then a round has all levels, to see what they bring by now; what rows would is known without having
// them. Times are arguments. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/calibration.h"
#include "tree/candidates.h"

namespace espalier {

struct ResidentChoice {
  std::int64_t rows = 1;  // of each tree
  int depth = 1;

  bool operator==(const ResidentChoice&) const = default;
};

class ResidentBudget {
 public:
  explicit ResidentBudget(const ResidentChoice& most)
      : most_(most), chosen_{std::min(kFirstRows, most.rows), most.depth} {}

  // For a round of so many trees. step_seconds[n - 1]: of a step of n rows.
  ResidentChoice choose(std::span<const double> step_seconds, std::int64_t trees);
  // The tokens per second of all trees of such a round, as it would be chosen; nothing: that is not known yet.
  std::optional<double> expected_rate(std::span<const double> step_seconds, std::int64_t trees) const;
  // Of a round: the chances of all guesses in `depth` levels, of an answer that had room for them.
  void learn(const Candidates& candidates, const AcceptanceEstimate& chances, int depth);
  // A round took so long beside its step.
  void observe(int depth, double draft_seconds);
  double draft_seconds(int depth) const { return depth * level_seconds_; }

 private:
  static constexpr std::int64_t kFirstRows = 16;

  bool knows() const { return level_seconds_ > 0 && !chances_.empty(); }
  double rate(const ResidentChoice& choice, std::span<const double> step_seconds, std::int64_t trees) const;

  ResidentChoice most_, chosen_;
  std::vector<std::vector<double>> chances_;  // by levels, then by rank
  double level_seconds_ = 0;                  // 0: nothing is known yet
  std::int64_t rounds_ = 0;
};

}  // namespace espalier
