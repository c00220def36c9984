// The contract of round_ops.h as plain loops, for devices whose memory is the host's: the reference device, which is
// the judge of the others, and the CPU device, since all but the passes over a vocabulary is a few hundred numbers.
#pragma once

#include <memory>

#include "device/round_ops.h"

namespace espalier {

// Ranks rows of logits with top_k and log_sum_exp of `device`, which must outlive this.
std::unique_ptr<RoundOps> make_round_loops(Device& device);

}  // namespace espalier
