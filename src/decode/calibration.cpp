#include "decode/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math.h"

namespace espalier {
namespace {

// What the drafter's own word counts for, in tries.
constexpr double kBinPriorTries = 6;
// A bin forgets half a percent with each new try: what was seen 140 tries ago counts half.
constexpr double kBinForget = 0.995;

}  // namespace

double Calibration::probability(SourceSet sources, double q) const {
  const Curve* curve = find(sources);
  if (!(q > 0)) return 0;
  if (curve == nullptr) return std::min(q, kCentres.back());
  const auto& values = curve->values;
  if (q <= kCentres.front()) return values.front() * q / kCentres.front();
  if (q >= kCentres.back()) return values.back();
  std::size_t right = 1;
  while (kCentres[right] < q) ++right;
  const double share = (q - kCentres[right - 1]) / (kCentres[right] - kCentres[right - 1]);
  return (1 - share) * values[right - 1] + share * values[right];
}

Calibration::Curve& Calibration::note(SourceSet sources, double q, bool accepted) {
  auto curve = std::ranges::find(curves_, sources, &std::pair<SourceSet, Curve>::first);
  if (curve == curves_.end()) curve = curves_.insert(curve, {sources, Curve()});
  Bin& bin = curve->second.bins[bin_of(q)];
  bin.hits = kBinForget * bin.hits + (accepted ? 1 : 0);
  bin.tries = kBinForget * bin.tries + 1;
  return curve->second;
}

void Calibration::learn(const Candidates& candidates, std::span<const Visit> visits) {
  int node = 0;
  for (const Visit& visit : visits) {
    int chosen = 0;
    for (int child = candidates[node].newest_child; child != 0; child = candidates[child].older_sibling) {
      const bool accepted = candidates[child].token == visit.token;
      if (accepted) chosen = child;
      note(candidates[child].sources, conditional_probability(candidates, child), accepted);
    }
    if (chosen == 0) break;
    node = chosen;
  }
  for (auto& [sources, curve] : curves_) fit(curve);
}

std::size_t Calibration::bin_of(double q) {
  const auto above = static_cast<std::size_t>(std::ranges::lower_bound(kCentres, q) - kCentres.begin());
  if (above == 0) return 0;
  if (above == kCentres.size()) return above - 1;
  return kCentres[above] - q < q - kCentres[above - 1] ? above : above - 1;
}

// Pools neighbours until nothing falls: of all non-falling curves the nearest by weighted squares.
void Calibration::fit(Curve& curve) {
  struct Pool {
    double hits = 0, weight = 0;
    std::size_t bins = 0;
    double value() const { return hits / weight; }
  };
  std::array<Pool, kCentres.size()> pools;
  std::size_t count = 0;
  for (std::size_t i = 0; i < kCentres.size(); ++i) {
    const Bin& bin = curve.bins[i];
    pools[count++] = {bin.hits + kBinPriorTries * kCentres[i], bin.tries + kBinPriorTries, 1};
    for (; count > 1 && pools[count - 2].value() > pools[count - 1].value(); --count) {
      pools[count - 2].hits += pools[count - 1].hits;
      pools[count - 2].weight += pools[count - 1].weight;
      pools[count - 2].bins += pools[count - 1].bins;
    }
  }
  std::size_t bin = 0;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t n = 0; n < pools[i].bins; ++n) curve.values[bin++] = pools[i].value();
}

const Calibration::Curve* Calibration::find(SourceSet sources) const {
  const auto curve = std::ranges::find(curves_, sources, &std::pair<SourceSet, Curve>::first);
  return curve == curves_.end() ? nullptr : &curve->second;
}

double score_of(double probability) {
  return probability > 0 ? log_f64(probability) : -std::numeric_limits<double>::infinity();
}

double conditional_probability(const Candidates& candidates, int id) {
  const Candidate& candidate = candidates[id];
  const double above = candidates[candidate.parent].score;
  return std::isfinite(candidate.score) && std::isfinite(above) ? exp_f64(candidate.score - above) : 0;
}

void AcceptanceEstimate::extend(const Candidates& candidates, const Calibration& calibration) {
  const int first = size();
  const auto total = static_cast<std::size_t>(candidates.size());
  accepted_.resize(total, 1);
  conditional_.resize(total, 1);
  claimed_.resize(total, 0);
  for (int id = std::max(1, first); id < candidates.size(); ++id) {
    const auto at = static_cast<std::size_t>(id);
    conditional_[at] = calibration.probability(candidates[id].sources, conditional_probability(candidates, id));
    claimed_[static_cast<std::size_t>(candidates[id].parent)] += conditional_[at];
  }
  for (int id = std::max(1, first); id < candidates.size(); ++id) {
    const auto at = static_cast<std::size_t>(id), parent = static_cast<std::size_t>(candidates[id].parent);
    conditional_[at] /= std::max(1.0, claimed_[parent]);
    accepted_[at] = conditional_[at] * accepted_[parent];
  }
}

}  // namespace espalier
