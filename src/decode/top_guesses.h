// The best guesses in rows of draft logits, as the teacher's ids with log-probabilities: one synchronisation, however
// many rows there are. Buffers are allocated once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "tree/token_tree.h"

namespace espalier {

class TopGuesses {
 public:
  // For up to `rows` rows and up to `count` guesses each. The device must outlive this.
  TopGuesses(Device& device, std::int64_t rows, std::int64_t count);

  struct Vocabulary {
    std::span<const std::int32_t> target_ids = {};  // the teacher's id of every column; empty: the column itself
    float logit_scale = 1.0f;                       // multiplies the logits
  };

  // The best guesses of each row, best first: log softmax over the columns. logits: f32 [rows, columns].
  std::vector<std::vector<DraftToken>> read(ConstView logits, std::int64_t count, const Vocabulary& vocabulary);

 private:
  // What the device found in rows, on the host.
  struct Found {
    std::vector<float> value;       // [rows, count]
    std::vector<std::int32_t> id;   // [rows, count], columns
    std::vector<float> normaliser;  // [rows]
  };
  Found find(ConstView logits, std::int64_t count, float logit_scale);

  Device* device_;
  std::int64_t rows_;
  std::int64_t count_;
  Tensor values_, ids_, normaliser_;  // each row at a place of its own
};

}  // namespace espalier
