#include "experiments/cost_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace espalier {
namespace {

constexpr double kPlainTokensPerSecond = 215;
constexpr double kPrefillTokensPerSecond = 1500;
constexpr double kStep16 = 0.014, kStep64 = 0.045;  // seconds
constexpr double kDraftPass = 0.0012;               // of an EAGLE-3 head over one level

double between(double x, double x0, double y0, double x1, double y1) {
  return y0 + (x - x0) / (x1 - x0) * (y1 - y0);
}

}  // namespace

double step_seconds(int rows) {
  if (rows <= 16) return between(rows, 1, 1 / kPlainTokensPerSecond, 16, kStep16);
  return between(rows, 16, kStep16, 64, kStep64);
}

// What the shipped heads bring (docs/training.md), a little more with every doubling of the rows. EAGLE-3 brings 1.4
// times what EAGLE-2 does (arXiv 2503.01840).
double tokens_per_step(const std::string& drafter, int rows, int depth) {
  if (drafter.empty() || rows <= 1) return 1;
  const double doublings = std::log2(rows / 16.0);
  const double tokens = drafter == "eagle3"   ? 4.9 + 0.3 * doublings
                        : drafter == "eagle2" ? 3.5 + 0.25 * doublings
                        : drafter == "medusa" ? 2.0 + 0.15 * doublings
                                              : 1.95 + 0.05 * doublings;
  return std::clamp(tokens, 1.0, 1.0 + depth);
}

double estimate_seconds(const RunCost& cost) {
  const auto turns = static_cast<double>(cost.turns), plain = static_cast<double>(cost.plain_turns);
  const auto tokens = static_cast<double>(cost.tokens);
  const double prefill = static_cast<double>(cost.prompt_tokens) / kPrefillTokensPerSecond;
  // Guesses of n-grams seldom fill a tree.
  const int rows = cost.drafter == "ngram" ? std::min(cost.rows, 8 + cost.rows / 16) : cost.rows;
  const double drafting = cost.drafter.starts_with("eagle") ? kDraftPass * cost.depth : 0;
  const double round = cost.drafter.empty() ? step_seconds(1) : drafting + step_seconds(rows);
  const double answer = tokens * round / tokens_per_step(cost.drafter, cost.rows, cost.depth);
  return turns * (prefill + answer) + plain * (prefill + tokens * step_seconds(1));
}

std::string duration_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::llround(seconds));
  if (all < 60) return fmt::format("{} s", all);
  if (all < 3600) return fmt::format("{} min {} s", all / 60, all % 60);
  return fmt::format("{} h {} min", all / 3600, all % 3600 / 60);
}

}  // namespace espalier
