#include "decode/guess_worth.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "decode/budget.h"

namespace espalier {
namespace {

constexpr std::size_t kRemembered = 128;
constexpr double kUsual[] = {0.98, 0.93, 0.86, 0.76, 0.64, 0.5, 0.36, 0.24};
constexpr int kMostLevels = 6;

}  // namespace

GuessWorth::GuessWorth() : chances_(std::begin(kUsual), std::end(kUsual)) {}

void GuessWorth::learn(double chance, int times) {
  for (; times > 0; --times) {
    if (chances_.size() < kRemembered) {
      chances_.push_back(chance);
      continue;
    }
    chances_[oldest_] = chance;
    oldest_ = (oldest_ + 1) % kRemembered;
  }
}

double GuessWorth::mean() const {
  return std::accumulate(chances_.begin(), chances_.end(), 0.0) / static_cast<double>(chances_.size());
}

// Quantiles, at the middle of each answer's share.
std::vector<double> GuessWorth::expected(int answers) const {
  std::vector<double> sorted = chances_, expected;
  std::ranges::sort(sorted, std::greater<>());
  for (int answer = 0; answer < answers; ++answer) {
    const double place = (answer + 0.5) / answers * static_cast<double>(sorted.size());
    expected.push_back(sorted[static_cast<std::size_t>(place)]);
  }
  return expected;
}

double drafting_gain(std::span<const double> chances, const DraftPrices& prices) {
  const double plain = best_rows({}, prices.step_seconds, 0, prices.roots).rate;
  std::vector<double> level(chances.begin(), chances.end()), accepted;
  double best = 0, spent = prices.first_level;
  for (int levels = 1; levels <= kMostLevels; ++levels) {
    const auto above = std::ssize(accepted);
    accepted.insert(accepted.end(), level.begin(), level.end());
    std::ranges::inplace_merge(accepted, accepted.begin() + above, std::greater<>());
    best = std::max(best, best_rows(accepted, prices.step_seconds, spent, prices.roots).rate);
    for (std::size_t answer = 0; answer < level.size(); ++answer) level[answer] *= chances[answer];
    spent += prices.further_level;
  }
  return best / plain;
}

}  // namespace espalier
