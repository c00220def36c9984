// Whether to draft by what drafting has brought. A balance says what it has lately won or lost against plain decoding;
// below zero there is a probe now and then, after a pause that doubles with every failure, but is no longer than it
// takes to pay for the probe; one that wins is followed by another at once. Times are arguments. A value.
#pragma once

#include <cstdint>

namespace espalier {

class Patience {
 public:
  // Asked once a round.
  bool drafts();
  // A drafted round brought `tokens` in `seconds`, where a plain one takes `plain_seconds` for one. Probes that find
  // nothing may cost this share of the time.
  void settle(double tokens, double seconds, double plain_seconds, double probe_share = kProbeShare);

  std::int64_t pause() const { return pause_; }  // plain rounds between the last probe and the next
  bool wins() const { return balance_ > 0; }     // more has been won than lost
  // Between the last probe and the next drafters need not be ready: the pause is so long that it is dearer to keep them
  // so than to let the next probe begin with what they remember of the text by then.
  bool rests() const { return pause_ >= kRestingPause; }

  static constexpr std::int64_t kRestingPause = 32;
  static constexpr double kProbeShare = 0.01;

 private:
  double balance_ = 0;  // seconds won
  std::int64_t pause_ = 0;
  std::int64_t longest_ = 0;  // pause after the failures in a row, whatever they cost
  std::int64_t waited_ = 0;
};

}  // namespace espalier
