#include "session/loop_guard.h"

namespace espalier {

// Equal stretches of length p are tokens that equal those p before them, all through the stretches after the first. A
// period longer than a third of the answer so far is counted as well: the answer may grow long enough for it.
bool LoopGuard::push(std::int32_t token) {
  tokens_.push_back(token);
  const std::size_t count = tokens_.size();
  equal_.resize(count);  // periods below the number of tokens
  bool loops = false;
  for (std::size_t period = kShortestStretch; period < count; ++period) {
    std::size_t& run = equal_[period];
    run = tokens_[count - 1 - period] == token ? run + 1 : 0;
    loops = loops || run >= (kStretches - 1) * period;
  }
  return loops;
}

}  // namespace espalier
