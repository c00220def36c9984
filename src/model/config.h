// What a model is made of, read from a Hugging Face config.json or from GGUF metadata. All supported families are one
// network with switches: a pre-norm decoder with grouped-query attention, rotary positions and a gated MLP.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace espalier {

struct ModelConfig {
  std::string family;  // "llama", "mistral", "qwen2", "qwen3", "pangu"
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t vocabulary = 0;
  std::int64_t context = 0;  // positions the model was made for
  float rms_eps = 0;
  bool qkv_bias = false;
  bool output_bias = false;                // of the attention's output projection
  bool qk_norm = false;                    // RMS norm of each query and key head before the rotation
  bool tied = false;                       // the output matrix is the embedding table
  std::int64_t sliding_window = 0;         // keys a row sees, itself included; 0: all
  std::vector<float> inverse_frequencies;  // [head_size / 2], scaling included
};

// Both throw InputError naming the file, the field, what was expected and what was found, also for networks that only
// look like a supported family.
ModelConfig read_config(const nlohmann::json& config, std::string_view file);
ModelConfig read_config(const Gguf& gguf);

}  // namespace espalier
