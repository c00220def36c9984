// What a batch settles once, when it is made: what it was asked for, cut to what its model and its device can do.
// Plain values.
#pragma once

#include <cstdint>

#include "decode/decoder_options.h"
#include "device/device.h"
#include "model/config.h"

namespace espalier {

// Positions of a conversation: those wanted, or with 0 what the model was made for. Throws InputError where it was made
// for fewer.
std::int64_t choose_context(const ModelConfig& config, std::int64_t wanted);

struct DecoderChoices {
  std::int64_t context = 0;       // positions of each sequence
  std::int64_t prefill_rows = 0;  // the most prompt rows of a step
  TreeOptions tree = {};
  StepForm form = {};
  std::int64_t tree_rows = 0;        // the most rows of the trees of a step
  std::int64_t branch_rows = 0;      // that a round of one sequence takes at most, for its tree or its drafts
  std::int64_t step_rows = 0;        // the most rows of a step
  std::int64_t scored_rows = 0;      // the most rows of a step all of which want logits
  std::int64_t drawn_rows = 0;       // the most rows of a step that are drawn from
  std::int64_t logit_rows = 0;       // the most rows of a step that want logits
  std::int64_t reserve = 128;        // positions that must be free beyond a prompt for it to be admitted
  std::int64_t cache_positions = 0;  // of all sequences together
  std::int64_t padding_slots = 0;    // besides, in whole blocks, for what pads steps and rounds
};

// The positions of a pool that one sequence of a whole context needs by the scheduler's count; and the other way round,
// the longest context that a pool of so many positions allows, below 1 where it allows none. Both look at the rows and
// the reserve of the choices alone.
std::int64_t pool_of_context(const DecoderChoices& choices, std::int64_t context);
std::int64_t context_of_pool(const DecoderChoices& choices, std::int64_t positions);

// Throws InputError naming the flags where the model or the device cannot do what was asked for.
DecoderChoices decoder_choices(const ModelConfig& config, const Device& device, const DecoderOptions& options,
                               const Speculation& speculation);

}  // namespace espalier
