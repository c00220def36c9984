// The part of eagle_config.h that is about EAGLE-1, EAGLE-2 and HASS heads.
#pragma once

#include "model/eagle_config.h"

namespace espalier {

// Sizes of keys and which biases there are come from the tensors: published configurations contradict them.
EagleConfig read_eagle2_config(const HeadFiles& files, const ModelConfig& teacher, const HeadOptions& options);

}  // namespace espalier
