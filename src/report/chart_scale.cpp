#include "report/chart_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace espalier {
namespace {

double round_step(double span, int count) {
  const double raw = span / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  if (!std::isfinite(low) || !std::isfinite(high) || low > high) return {0, 1};
  if (low == high) {
    const double around = low == 0 ? 1 : std::abs(low) / 2;
    low = low >= 0 && low < around ? 0 : low - around;
    high += around;
  }
  const double step = round_step(high - low, count);
  if (!std::isnormal(step)) return {0, 1};
  const double first = std::floor(low / step * (1 + 1e-12)), last = std::ceil(high / step * (1 - 1e-12));
  std::vector<double> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string tick_text(double value, double step, bool percent) {
  if (percent) value *= 100, step *= 100;
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
  return fmt::format("{:.{}f}{}", value + 0.0, decimals, percent ? " %" : "");
}

}  // namespace espalier
