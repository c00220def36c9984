// What a decoder settles once, when it is made: what it was asked for, cut to what its model and its device can do.
// Plain values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "decode/decoder_options.h"
#include "device/device.h"
#include "model/config.h"

namespace espalier {

// Positions of a conversation: those wanted, or with 0 what the model was made for. Throws InputError where it was made
// for fewer.
std::int64_t choose_context(const ModelConfig& config, std::int64_t wanted);

struct DecoderChoices {
  std::int64_t context = 0;       // positions of each lane
  std::int64_t prefill_rows = 0;  // the most rows of a prefill step
  TreeOptions tree = {};
  StepForm form = {};
  std::int64_t cache_positions = 0;  // of all lanes together
  std::int64_t tree_rows = 0;        // the most rows of a step over the trees of all lanes
  std::int64_t scored_rows = 0;      // the most rows of a prefill step all of which want logits

  std::int64_t step_rows() const { return std::max(prefill_rows, tree_rows); }
  std::int64_t logit_rows() const { return std::max(scored_rows, tree_rows); }
};

// Throws InputError naming the flags where the model or the device cannot do what was asked for.
DecoderChoices decoder_choices(const ModelConfig& config, const Device& device, const DecoderOptions& options,
                               const Speculation& speculation);

}  // namespace espalier
