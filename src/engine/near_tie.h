// On a device that is not row independent two correct answers may part where two tokens are nearly equal; from there on
// they are different texts. What is near: numbers in 16-bit types have 8 digits, so that logits of 25 are known to
// about a tenth. A margin is the difference of the two tokens' log-probabilities in the plain run.
#pragma once

#include <cmath>
#include <optional>

namespace espalier {

inline constexpr double kNearTie = 0.1;

inline bool is_near_tie(std::optional<double> margin) {
  return margin && std::fabs(*margin) <= kNearTie;
}

}  // namespace espalier
