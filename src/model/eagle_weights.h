// The weights of an EAGLE head on a device, whatever its container calls them. Every tensor is checked for shape and
// type against the configuration; missing and unknown names are errors. Immutable after loading.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/eagle_config.h"
#include "model/head_files.h"
#include "model/weights.h"

namespace espalier {

struct EagleWeights {
  Tensor input_norm;                 // [taps * teacher hidden]; empty unless norm_before_fc
  std::vector<Tensor> tap_norms;     // [teacher hidden] each; none unless fc_norm
  std::unique_ptr<const Weight> fc;  // [hidden, taps * teacher hidden]; EAGLE-2: [hidden, 2 * hidden]
  Tensor fc_bias;                    // [hidden]; empty unless fc_bias
  // [hidden], of the feature; the norm of the token is the first attention_norm. EAGLE-2 has neither of them.
  Tensor hidden_norm;
  std::vector<LayerWeights> layers;             // the first takes 2 * hidden inputs in EAGLE-3, all others are plain
  Tensor final_norm;                            // [hidden]; not in EAGLE-2
  std::unique_ptr<const Weight> own_embedding;  // [teacher vocabulary or more, hidden]; null: the teacher's
  std::unique_ptr<const Weight> own_output;     // [draft vocabulary, hidden]; null: the teacher's
  std::vector<std::int32_t> target_ids;         // [draft vocabulary]: the teacher's id of every draft id
};

// What a head lacks it has from the teacher: embedding and output matrix, or some rows of it. Throws InputError where a
// head that lacks them is not as wide as its teacher, and where an EAGLE-2 head has those of another one.
EagleWeights load_eagle_weights(Device& device, const HeadFiles& files, const EagleConfig& config,
                                const HeadOptions& options, const ModelWeights& teacher);

}  // namespace espalier
