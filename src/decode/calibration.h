// How far a drafter's own probabilities can be believed: a map from what it says to how often the teacher agreed.
//
// A guess is judged where the walk visited its parent: the teacher's choice there says yes to one sibling and no to the
// others, also to those that were cut from the tree. Guesses are kept apart by who made them (the set of sources) and
// by bin of the conditional probability q = P(token | path) they came with. Each bin estimates
//
//   (hits + w c) / (tries + w)          c: the centre of the bin, w: what the drafter's own word counts for
//
// with tries that fade, the estimates are made non-falling from bin to bin (pool adjacent violators), and p(q) runs
// linearly between centres. Before anything was seen p(q) = q, below 1. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "decode/drafter.h"
#include "tree/candidates.h"

namespace espalier {

class Calibration {
 public:
  // p(q) for guesses of these sources: in [0, 1], never falling in q.
  double probability(SourceSet sources, double q) const;
  void learn(SourceSet sources, double q, bool accepted) { fit(note(sources, q, accepted)); }
  // Everything that a walk over `visits` says of the candidates: the first visit is the root's.
  void learn(const Candidates& candidates, std::span<const Visit> visits);

 private:
  static constexpr std::array<double, 12> kCentres = {0.01, 0.03, 0.07, 0.14, 0.24, 0.36,
                                                      0.5,  0.64, 0.76, 0.86, 0.93, 0.98};
  struct Bin {
    double hits = 0;
    double tries = 0;
  };
  struct Curve {
    std::array<Bin, kCentres.size()> bins = {};
    std::array<double, kCentres.size()> values = kCentres;  // of p at the centres
  };

  Curve& note(SourceSet sources, double q, bool accepted);
  static std::size_t bin_of(double q);
  static void fit(Curve& curve);
  const Curve* find(SourceSet sources) const;

  std::vector<std::pair<SourceSet, Curve>> curves_;  // a handful
};

// The score of a path that is accepted with this probability.
double score_of(double probability);

// The conditional probability that a candidate came with: its score against its parent's.
double conditional_probability(const Candidates& candidates, int id);

// The probability that each candidate is accepted: 1 for the root, p(q) times its parent's for the others; siblings
// that claim more than 1 together are scaled down. Grows with the candidates: only those that are new are computed, so
// the children of a candidate must all come between two calls.
class AcceptanceEstimate {
 public:
  void extend(const Candidates& candidates, const Calibration& calibration);

  double operator[](int id) const { return accepted_[static_cast<std::size_t>(id)]; }
  // Given that the parent is.
  double conditional(int id) const { return conditional_[static_cast<std::size_t>(id)]; }
  int size() const { return static_cast<int>(accepted_.size()); }

 private:
  std::vector<double> accepted_, conditional_;
  std::vector<double> claimed_;  // by the children of each candidate
};

}  // namespace espalier
