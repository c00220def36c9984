#include "decode/resident_budget.h"

#include <algorithm>
#include <functional>

#include "decode/row_choice.h"

namespace espalier {
namespace {

constexpr double kShareOfNewest = 1.0 / 32;  // share of the newest in a mean
constexpr double kBetter = 1.08;             // that another shape has to be
constexpr std::int64_t kProbeRounds = 64;    // from one round of all levels to the next
constexpr std::int64_t kRowStep = 4;

void follow(double& mean, double value) {
  mean += kShareOfNewest * (value - mean);
}

}  // namespace

ResidentChoice ResidentBudget::choose(std::span<const double> step_seconds, std::int64_t trees) {
  if (!knows(trees) || ++rounds_ % kProbeRounds == 0) return {chosen_.rows, most_.depth};
  return chosen_ = best({step_seconds, trees, draft_seconds(trees, 1)});
}

ResidentChoice ResidentBudget::best(const Prices& prices) const {
  ResidentChoice best = chosen_;
  double best_rate = kBetter * rate(chosen_, prices);
  const int known = static_cast<int>(chances_.size());
  for (int depth = 1; depth <= known; ++depth)
    for (std::int64_t rows = std::min(kRowStep, most_.rows);; rows = std::min(rows + kRowStep, most_.rows)) {
      if (const double found = rate({rows, depth}, prices); found > best_rate) best = {rows, depth}, best_rate = found;
      if (rows == most_.rows) break;
    }
  return best;
}

// Levels for so many trees that were never had take what is usual.
std::optional<double> ResidentBudget::expected_rate(std::span<const double> step_seconds, std::int64_t trees,
                                                    double first_chance) const {
  if (chances_.empty() || chances_[0].empty() || chances_[0][0] <= 0) return std::nullopt;
  const double usual = kUsualLevelShare * seconds_of_rows(step_seconds, trees);
  const Prices prices{step_seconds, trees, knows(trees) ? draft_seconds(trees, 1) : usual,
                      first_chance / chances_[0][0]};
  return static_cast<double>(trees) * rate(best(prices), prices);
}

double ResidentBudget::rate(const ResidentChoice& choice, const Prices& prices) const {
  const std::vector<double>& chances = chances_[std::min(static_cast<std::size_t>(choice.depth), chances_.size()) - 1];
  const auto guesses = std::min(static_cast<std::size_t>(choice.rows) - 1, chances.size());
  double tokens = 1;
  for (const double chance : std::span(chances).first(guesses)) tokens += std::min(prices.worth * chance, 1.0);
  return tokens /
         (choice.depth * prices.level_seconds + seconds_of_rows(prices.step_seconds, prices.trees * choice.rows));
}

void ResidentBudget::learn(const Candidates& candidates, const AcceptanceEstimate& chances, int depth) {
  if (std::ssize(chances_) < depth) chances_.resize(static_cast<std::size_t>(depth));
  for (int levels = 1; levels <= depth; ++levels) {
    std::vector<double> own;
    for (int id = 1; id < candidates.size(); ++id)
      if (candidates[id].depth <= levels) own.push_back(chances[id]);
    std::ranges::sort(own, std::greater<>());
    own.resize(static_cast<std::size_t>(most_.rows));
    std::vector<double>& means = chances_[static_cast<std::size_t>(levels) - 1];
    if (means.empty()) means = own;
    for (std::size_t rank = 0; rank < own.size(); ++rank) follow(means[rank], own[rank]);
  }
}

// A round that something delayed counts for little.
void ResidentBudget::observe(std::int64_t trees, int depth, double draft_seconds) {
  const double seconds = std::max(draft_seconds, 0.0) / depth;
  double& known = level_seconds_[company_size(trees)];
  if (known == 0) known = seconds;
  follow(known, std::min(seconds, 4 * known));
}

}  // namespace espalier
