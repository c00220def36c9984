#include "model/eagle2_config.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "model/config_fields.h"
#include "model/eagle_names.h"

namespace espalier {
namespace {

// Switches of relatives that have norms where this network has none, with the value that means so.
struct OtherNetwork {
  const char* key;
  bool value;
};
constexpr OtherNetwork kOtherNetworks[] = {
    {"skip_prenorm", false}, {"skip_output_norm", false}, {"add_para_norm", true}, {"layernorms", true}};

void refuse_other_switches(const JsonFields& fields) {
  for (const auto& [key, value] : kOtherNetworks)
    if (fields.boolean(key, !value) == value)
      input_error("{}: {}: expected {}, got {} (a relative of EAGLE-2 with norms of its own)", fields.file(), key,
                  !value, value);
}

void refuse_options(const HeadOptions& options) {
  if (options.taps) throw InputError("head option taps: an EAGLE-2 head reads the teacher's last state, expected none");
  if (options.norm_output)
    throw InputError("head option norm_output: an EAGLE-2 head has no norm there, expected none");
}

// What a head is told by whom it was made for.
void check_teacher(const JsonFields& fields, const EagleNames& names, const ModelConfig& teacher) {
  const std::int64_t hidden = fields.require_integer("hidden_size", 1, kMaxWidth);
  if (hidden != teacher.hidden)
    input_error("{}: hidden_size: expected the teacher's {}, got {}", fields.file(), teacher.hidden, hidden);
  const auto truncated = fields.integer("truncated_vocab_size", 1, kMaxVocabulary);
  if (truncated && *truncated != teacher.vocabulary)
    input_error("{}: truncated_vocab_size: expected the teacher's {}, got {}", fields.file(), teacher.vocabulary,
                *truncated);
  const auto vocabulary = fields.integer("vocab_size", 1, kMaxVocabulary);
  if (!vocabulary || *vocabulary == teacher.vocabulary) return;
  // Tables may be padded.
  const TensorInfo* embedding = names.find("embed_tokens.weight");
  const bool padded =
      *vocabulary > teacher.vocabulary && embedding && !embedding->shape.empty() && embedding->shape[0] == *vocabulary;
  if (!padded)
    input_error("{}: vocab_size: expected the teacher's {}, got {}", fields.file(), teacher.vocabulary, *vocabulary);
}

std::int64_t read_head_size(const JsonFields& fields, const EagleConfig& config) {
  if (config.hidden % config.heads != 0)
    input_error("{}: num_attention_heads: expected a divisor of the hidden size {}, got {}", fields.file(),
                config.hidden, config.heads);
  const std::int64_t size = config.hidden / config.heads;
  if (const auto said = fields.integer("head_dim", 1, kMaxWidth); said && *said != size)
    input_error("{}: head_dim: expected hidden size over heads {}, got {}", fields.file(), size, *said);
  if (size % 2 != 0) input_error("{}: head size {}: expected an even number", fields.file(), size);
  return size;
}

// As many as k_proj has room for: heads and teachers often differ in them.
std::int64_t count_kv_heads(const JsonFields& fields, const EagleNames& names, const EagleConfig& config,
                            std::string_view file) {
  constexpr const char* kKeys = "layers.0.self_attn.k_proj.weight";
  const TensorInfo* keys = names.find(kKeys);
  if (!keys) input_error("{}: tensor {} is missing", file, names.spell(kKeys));
  if (keys->shape.size() != 2)
    input_error("{}: tensor {}: expected a matrix, got [{}]", file, names.spell(kKeys), fmt::join(keys->shape, ", "));
  const std::int64_t rows = keys->shape[0];
  const std::int64_t count = rows / config.head_size;
  if (count < 1 || rows % config.head_size != 0 || config.heads % count != 0)
    input_error("{}: {}: expected the head size {} times a divisor of {} heads, got {} rows", file, names.spell(kKeys),
                config.head_size, config.heads, rows);
  if (const auto said = fields.integer("num_key_value_heads", 1, kMaxWidth); said && *said != count)
    input_error("{}: num_key_value_heads: expected {} by the rows of k_proj, got {}", fields.file(), count, *said);
  return count;
}

}  // namespace

EagleConfig read_eagle2_config(const HeadFiles& files, const ModelConfig& teacher, const HeadOptions& options) {
  refuse_options(options);
  // vLLM's repackaging nests the layer's fields in `model`, speculators in `transformer_layer_config`.
  const nlohmann::json flat =
      with_nested(parse_json(files.config, files.config_file), {"model", "transformer_layer_config", "eagle_config"});
  const JsonFields fields(flat, files.config_file);
  const EagleNames names(*files.tensors, false);
  refuse_other_switches(fields);
  refuse_other_layers(fields);
  check_teacher(fields, names, teacher);
  EagleConfig config{.generation = EagleGeneration::second, .taps = {teacher.layers}, .hidden = teacher.hidden};
  config.intermediate = fields.require_integer("intermediate_size", 1, kMaxWidth);
  config.heads = fields.require_integer("num_attention_heads", 1, kMaxWidth);
  config.head_size = read_head_size(fields, config);
  config.kv_heads = count_kv_heads(fields, names, config, files.tensors->description());
  fields.require_number("rms_norm_eps");
  config.rms_eps = fields.factor("rms_norm_eps");
  config.fc_bias = names.has("fc.bias");
  for (const char* bias : {"q_proj", "k_proj", "v_proj"})
    config.qkv_bias = config.qkv_bias || names.has("layers.0.self_attn." + std::string(bias) + ".bias");
  config.logit_scale = fields.factor("logit_scale");
  config.rope = read_rope(fields, config.head_size, {.theta = options.rope_theta, .of_head = true});
  return config;
}

}  // namespace espalier
