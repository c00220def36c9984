// What an EAGLE head is made of and which boundaries of the teacher it reads, from config.json in any of its dialects
// or from GGUF metadata, and for EAGLE-2 from the tensors, which its configurations contradict. Everything that would
// make another network of it is refused with an InputError: file, field, expected, got. docs/drafters.md has the table
// of dialects and rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/head_files.h"
#include "model/rope.h"

namespace espalier {

// EAGLE-1, EAGLE-2 and HASS heads are one network, the second here: they differ in their trees and their training.
enum class EagleGeneration { second, third };

struct EagleConfig {
  EagleGeneration generation = EagleGeneration::third;
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
  bool fc_bias = false;               // EAGLE-2
  bool norm_before_residual = false;  // the residual stream starts from the normed feature
  bool norm_output = false;           // the normed output is fed back
  float logit_scale = 1;
  Rope rope = {};

  std::int64_t feature_width() const { return static_cast<std::int64_t>(taps.size()) * teacher_hidden; }
};

// kind: eagle2 or eagle3, as classify_head knows it.
EagleConfig read_eagle_config(const HeadFiles& files, HeadKind kind, const ModelConfig& teacher,
                              const HeadOptions& options);

// Other activations and attention in windows: of no generation.
void refuse_other_layers(const JsonFields& fields);

// The boundaries that the tap ids of a config.json mean for a teacher of so many layers; none: the default taps. Ids
// are either boundaries or outputs of layers, and no file says which: an id equal to the number of layers can only be a
// boundary; otherwise a first id of 1 marks outputs of layers.
std::vector<std::int64_t> resolve_taps(const std::optional<std::vector<std::int64_t>>& ids, std::int64_t layers,
                                       std::string_view file);

}  // namespace espalier
