#include "decode/step_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"

namespace espalier {
namespace {

// A running mean over the last 32 steps or so.
constexpr double kMemory = 32;
// A column is corrected by its own steps once they outweigh this many of all steps.
constexpr double kColumnPrior = 8;
// One step may pull a mean no further than to half or twice of what it is: another process took the core.
constexpr double kLargestPull = 2;

template <typename T>
bool ascends(const std::vector<T>& axis) {
  return std::ranges::adjacent_find(axis, std::greater_equal<>()) == axis.end();
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool StepTimes::usable() const {
  if (rows.empty() || contexts.empty() || seconds.size() != rows.size() * contexts.size()) return false;
  if (rows[0] != 1 || contexts[0] < 0 || !ascends(rows) || !ascends(contexts)) return false;
  return std::ranges::all_of(seconds, [](double s) { return std::isfinite(s) && s > 0; });
}

StepCosts::StepCosts(StepTimes measured, std::span<const std::int64_t> buckets)
    : measured_(std::move(measured)), buckets_(buckets.begin(), buckets.end()), columns_(measured_.rows.size()) {
  check(measured_.usable(), "step times: {} rows and {} contexts with {} times", measured_.rows.size(),
        measured_.contexts.size(), measured_.seconds.size());
}

// Between the two measured numbers of rows around `rows`; beyond the last in proportion. right: the first column behind
// column 0 that has as many rows, or behind the last.
template <typename Time>
double StepCosts::between(std::size_t right, std::int64_t rows, Time time) const {
  const auto& grid = measured_.rows;
  const std::size_t last = grid.size() - 1;
  if (rows >= grid[last]) return time(last) * static_cast<double>(rows) / grid[last];
  const double share = static_cast<double>(rows - grid[right - 1]) / (grid[right] - grid[right - 1]);
  return (1 - share) * time(right - 1) + share * time(right);
}

// Every round asks for all of them, so numbers of rows that are launched as the same one are computed once, and columns
// and buckets are walked along instead of searched.
void StepCosts::fill(std::int64_t context, std::span<double> out) const {
  std::vector<double> column_times(columns_.size());
  for (std::size_t c = 0; c < column_times.size(); ++c) column_times[c] = measured_at(c, context) * factor(c);
  double highest = 0;
  std::size_t right = 1;
  auto bucket = buckets_.begin();
  for (std::size_t i = 0; i < out.size();) {
    const auto wanted = static_cast<std::int64_t>(i) + 1;
    while (bucket != buckets_.end() && *bucket < wanted) ++bucket;
    const std::int64_t rows = bucket == buckets_.end() ? wanted : *bucket;
    while (right < measured_.rows.size() && measured_.rows[right] < rows) ++right;
    highest = std::max(highest, between(right, rows, [&](std::size_t c) { return column_times[c]; }));
    for (const std::size_t end = std::min(out.size(), static_cast<std::size_t>(rows)); i < end; ++i) out[i] = highest;
  }
}

void StepCosts::observe(std::int64_t rows, std::int64_t context, double seconds) {
  if (!(seconds > 0)) return;
  rows = launched_rows(rows);
  const std::size_t column = nearest_column(rows);
  const auto right = std::ranges::lower_bound(measured_.rows.begin() + 1, measured_.rows.end(), rows);
  const double expected = between(static_cast<std::size_t>(right - measured_.rows.begin()), rows,
                                  [&](std::size_t c) { return measured_at(c, context); });
  const double now = factor(column);
  const auto learn = [&](Correction& mean, double before) {
    const double ratio = std::clamp(seconds / expected, before / kLargestPull, before * kLargestPull);
    mean.weight = std::min(mean.weight + 1, kMemory);
    mean.ratio += (ratio - mean.ratio) / mean.weight;
  };
  learn(columns_[column], now);
  learn(all_, all_.ratio);
}

double StepCosts::measured_at(std::size_t column, std::int64_t context) const {
  const auto& contexts = measured_.contexts;
  const auto time = [&](std::size_t c) { return measured_.seconds[c * measured_.rows.size() + column]; };
  if (contexts.size() == 1 || context <= contexts[0]) return time(0);
  std::size_t right = 1;
  while (right + 1 < contexts.size() && contexts[right] < context) ++right;
  const double slope = (time(right) - time(right - 1)) / static_cast<double>(contexts[right] - contexts[right - 1]);
  return time(right - 1) + std::max(0.0, slope) * static_cast<double>(context - contexts[right - 1]);
}

double StepCosts::factor(std::size_t column) const {
  const Correction& own = columns_[column];
  return (own.weight * own.ratio + kColumnPrior * all_.ratio) / (own.weight + kColumnPrior);
}

std::size_t StepCosts::nearest_column(std::int64_t rows) const {
  const auto& grid = measured_.rows;
  const auto above = std::ranges::lower_bound(grid, rows);
  if (above == grid.end()) return grid.size() - 1;
  const auto column = static_cast<std::size_t>(above - grid.begin());
  if (column == 0) return 0;
  return grid[column] - rows <= rows - grid[column - 1] ? column : column - 1;
}

std::int64_t StepCosts::launched_rows(std::int64_t rows) const {
  const auto bucket = std::ranges::lower_bound(buckets_, rows);
  return bucket == buckets_.end() ? rows : *bucket;
}

}  // namespace espalier
