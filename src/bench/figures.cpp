#include "bench/figures.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/quantile.h"

namespace espalier {
namespace {

// A sample takes about so long, within these numbers of calls.
constexpr double kSampleSeconds = 0.05;
constexpr std::size_t kFewestCalls = 3;
constexpr std::size_t kMostCalls = 500;

}  // namespace

Spread spread_of(std::span<const double> samples) {
  check(!samples.empty(), "the spread of no samples");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return {quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)};
}

const Figure* find_figure(std::span<const Figure> figures, std::string_view name, std::int64_t rows,
                          std::int64_t context) {
  const auto found = std::ranges::find_if(figures, [&](const Figure& figure) {
    return figure.name == name && figure.rows == rows && figure.context == context;
  });
  return found == figures.end() ? nullptr : &*found;
}

double sample_calls(const std::function<double()>& once) {
  once();
  std::vector<double> calls;
  double total = 0;
  while (calls.size() < kFewestCalls || (total < kSampleSeconds && calls.size() < kMostCalls)) {
    calls.push_back(once());
    total += calls.back();
  }
  return spread_of(calls).median;
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace espalier
