// The logits of a step of the teacher, as draws look at them. The host reads them once, when somebody looks at the
// first row: one synchronisation a step, whatever its trees and the paths through them.
//
// A device in host memory lends all rows where they lie. From one with memory of its own comes, in one download, what
// draws will look at: of rows where the largest logit decides, that one and its id, found on the device; all logits of
// the others. It is found there on any device in a step without trees whose draws want nothing else: every row is
// visited then, and the host alone would take longer. A row with nothing to draw from does no harm unless somebody
// draws from it. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/transformer.h"

namespace espalier {

// Rows of a step that want logits, and what draws need of them.
struct DrawnRows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  bool largest_decides = false;
};

// A row as a draw sees it: all logits, or the largest alone.
struct LogitRow {
  std::span<const float> all = {};  // empty: nobody needs more than the largest
  float largest = 0;                // NaN counts as minus infinity
  std::int32_t best = 0;            // the lowest id that has it
};

class StepLogits {
 public:
  // For steps with up to `rows` rows of which the largest logit decides. The device must outlive this.
  StepLogits(Device& device, std::int64_t rows);

  // A step has been launched. Its output stays valid until the next call; `drawn` holds each of its rows once,
  // ascending.
  void begin(const StepOutput& output, std::vector<DrawnRows> drawn);
  // The logits are valid until the next begin().
  LogitRow row(std::int64_t row);

 private:
  void read();
  void rank(std::vector<Download>& parts);
  std::span<float> host_rows(std::int64_t begin, std::int64_t count);

  Device* device_;
  Tensor largest_, best_;  // [rows, 1], found on the device

  // Of the step.
  StepOutput output_;
  std::vector<DrawnRows> drawn_;
  bool read_ = false, ranked_ = false;
  std::span<const float> lent_;    // [rows, vocabulary]; empty: nothing was lent, and
  std::vector<float> logits_;      // [rows, vocabulary], where all of them were asked for,
  std::vector<float> values_;      // [rows] and
  std::vector<std::int32_t> ids_;  // [rows], where the largest decides
};

}  // namespace espalier
