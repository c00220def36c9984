// How large the trees of a round that stays on the device are (resident_rounds.h): that has to be said before anything
// is guessed. What guesses bring is known from rounds before, as the mean chance of the m-th best guess of those in the
// first d levels; what levels cost, as what rounds took beyond the teacher's step. Rows M and levels d are chosen for
// the largest
//
//   (1 + sum of the first M - 1 chances) / (d * seconds of a level + seconds of a step of all trees' rows + h)
//
// h: what the host does for trees beyond what it does for the same number of single rows, once both have been seen.
// A device keeps a recording of each shape, so another one is taken only where it is clearly better, and rows come in
// steps. Now and then a round has all levels, to see what they bring by now; what rows would is known without having
// them. Times are arguments. One thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/calibration.h"
#include "decode/company_drafting.h"
#include "decode/usual_seconds.h"
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
  // Whether the round that was chosen last has all levels, so that all of them can be learned.
  bool probes() const { return probes_; }
  // The tokens per second of so many answers in a round of `trees`, as it would be chosen, if the best first guess has
  // this chance by now; nothing: that is not known yet.
  std::optional<double> expected_rate(std::span<const double> step_seconds, std::int64_t answers, std::int64_t trees,
                                      double first_chance) const;
  // Of a round: the chances of all guesses in `depth` levels, of an answer that had room for them.
  void learn(const Candidates& candidates, const AcceptanceEstimate& chances, int depth);
  // A round of so many trees took so long beside its step.
  void observe(std::int64_t trees, int depth, double draft_seconds);
  // The host was busy so long beside a round of so many trees, or, of single rows, beside a plain step.
  void observe_host(std::int64_t trees, bool drafted, double seconds);
  double draft_seconds(std::int64_t trees, int depth) const {
    return depth * level_seconds(trees) + host_seconds(trees);
  }

 private:
  static constexpr std::int64_t kFirstRows = 16;

  // Of rounds that are priced without being had.
  struct Prices {
    std::span<const double> step_seconds = {};
    std::int64_t trees = 1;
    double level_seconds = 0, host_seconds = 0;
    double worth = 1;  // chances against those that were learned
  };

  bool knows(std::int64_t trees) const { return level_seconds(trees) > 0 && !chances_.empty(); }
  double level_seconds(std::int64_t trees) const { return level_seconds_[company_size(trees)].mean(); }
  double host_seconds(std::int64_t trees) const;
  ResidentChoice best(const Prices& prices) const;
  double rate(const ResidentChoice& choice, const Prices& prices) const;

  ResidentChoice most_, chosen_;
  std::vector<std::vector<double>> chances_;                                     // by levels, then by rank
  std::array<UsualSeconds, kCompanySizes> level_seconds_ = {};                   // by the class of their number
  std::array<UsualSeconds, kCompanySizes> plain_host_ = {}, drafted_host_ = {};  // likewise
  std::int64_t rounds_ = 0;
  bool probes_ = false;
};

}  // namespace espalier
