#include "decode/resident_budget.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "decode/row_choice.h"

namespace espalier {
namespace {

constexpr double kRoundMemory = 32;        // in running means
constexpr double kBetter = 1.08;           // that another shape has to be
constexpr std::int64_t kProbeRounds = 64;  // from one round of all levels to the next
constexpr std::int64_t kRowStep = 4;

}  // namespace

ResidentChoice ResidentBudget::choose(std::span<const double> step_seconds, std::int64_t trees) {
  probes_ = !knows(trees) || ++rounds_ % kProbeRounds == 0;
  if (probes_) return {chosen_.rows, most_.depth};
  return chosen_ = best({step_seconds, trees, level_seconds(trees), host_seconds(trees)});
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
std::optional<double> ResidentBudget::expected_rate(std::span<const double> step_seconds, std::int64_t answers,
                                                    std::int64_t trees, double first_chance) const {
  if (chances_.empty() || chances_[0].empty() || chances_[0][0] <= 0) return std::nullopt;
  const double usual = kUsualLevelShare * seconds_of_rows(step_seconds, trees);
  const Prices prices{step_seconds, trees, knows(trees) ? level_seconds(trees) : usual, host_seconds(trees),
                      first_chance / chances_[0][0]};
  return static_cast<double>(answers) * rate(best(prices), prices);
}

double ResidentBudget::rate(const ResidentChoice& choice, const Prices& prices) const {
  const std::vector<double>& chances = chances_[std::min(static_cast<std::size_t>(choice.depth), chances_.size()) - 1];
  const auto guesses = std::min(static_cast<std::size_t>(choice.rows) - 1, chances.size());
  double tokens = 1;
  for (const double chance : std::span(chances).first(guesses)) tokens += std::min(prices.worth * chance, 1.0);
  return tokens / (choice.depth * prices.level_seconds + prices.host_seconds +
                   seconds_of_rows(prices.step_seconds, prices.trees * choice.rows));
}

void ResidentBudget::learn(const Candidates& candidates, const AcceptanceEstimate& chances, int depth) {
  if (std::ssize(chances_) < depth) chances_.resize(static_cast<std::size_t>(depth));
  std::vector<std::pair<double, std::int32_t>> ranked;  // and their depths
  for (int id = 1; id < candidates.size(); ++id) ranked.emplace_back(chances[id], candidates[id].depth);
  std::ranges::sort(ranked, std::greater<>());
  for (int levels = 1; levels <= depth; ++levels) {
    std::vector<double> own;
    own.reserve(ranked.size());
    for (const auto& [chance, level] : ranked)
      if (level <= levels) own.push_back(chance);
    own.resize(static_cast<std::size_t>(most_.rows));
    std::vector<double>& means = chances_[static_cast<std::size_t>(levels) - 1];
    if (means.empty()) means = own;
    for (std::size_t rank = 0; rank < own.size(); ++rank) means[rank] += (own[rank] - means[rank]) / kRoundMemory;
  }
}

void ResidentBudget::observe(std::int64_t trees, int depth, double draft_seconds) {
  level_seconds_[company_size(trees)].note(std::max(draft_seconds, 0.0) / depth, kRoundMemory);
}

void ResidentBudget::observe_host(std::int64_t trees, bool drafted, double seconds) {
  (drafted ? drafted_host_ : plain_host_)[company_size(trees)].note(std::max(seconds, 0.0), kRoundMemory);
}

double ResidentBudget::host_seconds(std::int64_t trees) const {
  const UsualSeconds &plain = plain_host_[company_size(trees)], &drafted = drafted_host_[company_size(trees)];
  return plain.known() ? std::max(drafted.mean() - plain.mean(), 0.0) : 0;
}

}  // namespace espalier
