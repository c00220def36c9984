// What an EAGLE-3 head is made of and which boundaries of the teacher it reads, from config.json in any of its dialects
// or from GGUF metadata. Everything that would make another network of it is refused with an InputError: file, field,
// expected, got. docs/drafters.md has the table of dialects and rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/head_files.h"

namespace espalier {

struct Eagle3Config {
  std::vector<std::int64_t> taps;   // boundaries of the teacher, ascending
  std::int64_t teacher_hidden = 0;  // width of one tap
  std::int64_t teacher_vocabulary = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  float rms_eps = 0;
  bool norm_before_fc = false;  // one norm over all taps of a position
  bool fc_norm = false;         // one norm for each tap
  bool qkv_bias = false;
  bool norm_before_residual = false;  // the residual stream starts from the normed feature
  bool norm_output = false;           // the normed output is fed back
  float logit_scale = 1;
  std::vector<float> inverse_frequencies;  // [head_size / 2], scaling included

  std::int64_t feature_width() const { return static_cast<std::int64_t>(taps.size()) * teacher_hidden; }
};

// `files` are those of an EAGLE-3 head (classify_head).
Eagle3Config read_eagle3_config(const HeadFiles& files, const ModelConfig& teacher, const HeadOptions& options);

// The boundaries that the tap ids of a config.json mean for a teacher of so many layers; none: the default taps. Ids
// are either boundaries or outputs of layers, and no file says which: an id equal to the number of layers can only be a
// boundary; otherwise a first id of 1 marks outputs of layers.
std::vector<std::int64_t> resolve_taps(const std::optional<std::vector<std::int64_t>>& ids, std::int64_t layers,
                                       std::string_view file);

}  // namespace espalier
