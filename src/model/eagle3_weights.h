// The weights of an EAGLE-3 head on a device, whatever its container calls them. Every tensor is checked for shape and
// type against the configuration; missing and unknown names are errors. Immutable after loading.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "model/eagle3_config.h"
#include "model/head_files.h"
#include "model/weights.h"

namespace espalier {

struct Eagle3Weights {
  Tensor input_norm;                 // [taps * teacher hidden]; empty unless norm_before_fc
  std::vector<Tensor> tap_norms;     // [teacher hidden] each; none unless fc_norm
  std::unique_ptr<const Weight> fc;  // [hidden, taps * teacher hidden]
  Tensor hidden_norm;                // [hidden], of the feature; the norm of the token is the first attention_norm
  std::vector<LayerWeights> layers;  // the first takes 2 * hidden inputs, those above it are plain
  Tensor final_norm;                 // [hidden]
  std::unique_ptr<const Weight> own_embedding;  // [teacher vocabulary or more, hidden]; null: the teacher's
  std::unique_ptr<const Weight> own_output;     // [draft vocabulary, hidden]; null: the teacher's
  std::vector<std::int32_t> target_ids;         // [draft vocabulary]: the teacher's id of every draft id
};

// teacher_output: what a head without an output matrix shares, or has some rows of. Throws InputError where a head
// without embedding or output matrix is not as wide as its teacher.
Eagle3Weights load_eagle3_weights(Device& device, const HeadFiles& files, const Eagle3Config& config,
                                  const HeadOptions& options, const Weight& teacher_output);

}  // namespace espalier
