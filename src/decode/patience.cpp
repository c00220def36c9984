#include "decode/patience.h"

#include <algorithm>

namespace espalier {
namespace {

// The balance stays within so many plain steps: what was lost long ago does not forbid to try again, what was won long
// ago does not pay for losses now.
constexpr double kMostLost = 2, kMostWon = 4;
constexpr std::int64_t kLongestPause = 256;

}  // namespace

bool Patience::drafts() {
  if (waited_ >= pause_) return true;
  ++waited_;
  return false;
}

void Patience::settle(double tokens, double seconds, double plain_seconds, double probe_share) {
  const double won = tokens * plain_seconds - seconds;
  balance_ = std::clamp(balance_ + won, -kMostLost * plain_seconds, kMostWon * plain_seconds);
  waited_ = 0;
  if (balance_ >= 0) {
    pause_ = longest_ = 0;
    return;
  }
  if (won > 0) {  // it may have turned: the next round tells
    pause_ = 0;
    return;
  }
  // What a round like this costs in vain, spread over a pause of n rounds, is an n-th of it in each. A cheap round ends
  // its own pause early, not those of the dear ones that follow.
  const double enough = (seconds - plain_seconds) / (probe_share * plain_seconds);
  longest_ = std::min(2 * longest_ + 1, kLongestPause);
  pause_ = static_cast<std::int64_t>(std::min(enough, static_cast<double>(longest_)));
}

}  // namespace espalier
