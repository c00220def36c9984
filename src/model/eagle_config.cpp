#include "model/eagle_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "model/config_fields.h"
#include "model/eagle2_config.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxTapId = std::int64_t{1} << 32;  // far beyond any layer; real limits give better messages
constexpr std::int64_t kSmallestTeacher = 7;  // below, the default taps are not three distinct ascending boundaries

bool is_speculators(const Json& config) {
  const auto layer = config.find("transformer_layer_config");
  return (layer != config.end() && layer->is_object() && !layer->empty()) || config.contains("speculators_model_type");
}

void check_teacher_field(std::string_view file, std::string_view key, std::int64_t value, std::int64_t expected) {
  if (value != expected) input_error("{}: {}: expected the teacher's {}, got {}", file, key, expected, value);
}

void check_taps(const std::vector<std::int64_t>& taps, std::int64_t layers, std::string_view file) {
  if (taps.empty()) input_error("{}: no taps, expected at least one boundary", file);
  for (std::int64_t tap : taps)
    if (tap < 0 || tap > layers)
      input_error("{}: taps [{}]: expected boundaries 0 to {}, got {}", file, fmt::join(taps, ", "), layers, tap);
  if (std::ranges::adjacent_find(taps, std::greater_equal<>()) != taps.end())
    input_error("{}: taps [{}]: expected ascending boundaries, each once", file, fmt::join(taps, ", "));
}

// The user's taps are boundaries and beat the file's.
std::vector<std::int64_t> read_taps(const JsonFields& fields, std::int64_t layers, const HeadOptions& options) {
  if (options.taps) {
    check_taps(*options.taps, layers, "head option taps");
    return *options.taps;
  }
  const auto ids = fields.integers("eagle_aux_hidden_state_layer_ids", -kMaxTapId, kMaxTapId);
  std::vector<std::int64_t> taps = resolve_taps(ids, layers, fields.file());
  const auto count = fields.integer("num_aux_hidden_states", 0, kMaxLayers);
  if (count && *count != static_cast<std::int64_t>(taps.size()))
    input_error("{}: num_aux_hidden_states: expected the number of taps {}, got {}", fields.file(), taps.size(),
                *count);
  return taps;
}

// llama.cpp reads target_layers as boundaries whatever the first one is.
std::vector<std::int64_t> read_taps(const GgufFields& fields, std::int64_t layers, const HeadOptions& options) {
  const std::vector<std::int64_t>* ids = fields.integers("target_layers");
  if (!options.taps && !ids)
    input_error("{}: eagle3.target_layers is missing, expected the boundaries of the taps",
                fields.gguf().description());
  std::vector<std::int64_t> taps = options.taps ? *options.taps : *ids;
  check_taps(taps, layers, options.taps ? "head option taps" : fields.gguf().description());
  return taps;
}

void read_sizes(const JsonFields& fields, EagleConfig& config) {
  config.hidden = fields.require_integer("hidden_size", 1, kMaxWidth);
  config.intermediate = fields.require_integer("intermediate_size", 1, kMaxWidth);
  config.heads = fields.require_integer("num_attention_heads", 1, kMaxWidth);
  config.kv_heads = fields.integer("num_key_value_heads", 1, config.heads).value_or(config.heads);
  const auto head_size = fields.integer("head_dim", 1, kMaxWidth);
  config.head_size = head_size ? *head_size : default_head_size(config.hidden, config.heads, fields.file());
  fields.require_number("rms_norm_eps");
  config.rms_eps = fields.factor("rms_norm_eps");
  check_heads({.heads = config.heads, .kv_heads = config.kv_heads, .head_size = config.head_size}, fields.file());
}

void read_sizes(const GgufFields& fields, EagleConfig& config) {
  const std::string_view file = fields.gguf().description();
  config.hidden = fields.require_integer("embedding_length", 1, kMaxWidth);
  config.intermediate = fields.require_integer("feed_forward_length", 1, kMaxWidth);
  config.heads = fields.require_integer("attention.head_count", 1, kMaxWidth);
  config.kv_heads = fields.integer("attention.head_count_kv", 1, config.heads).value_or(config.heads);
  const auto head_size = fields.integer("attention.key_length", 1, kMaxWidth);
  config.head_size = head_size ? *head_size : default_head_size(config.hidden, config.heads, file);
  if (const auto values = fields.integer("attention.value_length", 1, kMaxWidth); values && *values != config.head_size)
    input_error("{}: eagle3.attention.value_length {}: expected the key length {}", file, *values, config.head_size);
  config.rms_eps = static_cast<float>(fields.require_number("attention.layer_norm_rms_epsilon"));
  check_heads({.heads = config.heads, .kv_heads = config.kv_heads, .head_size = config.head_size}, file);
}

void read_switches(const JsonFields& fields, EagleConfig& config) {
  config.norm_before_fc = fields.boolean("norm_before_fc", false);
  config.fc_norm = fields.boolean("fc_norm", fields.boolean("use_aux_norm", false));
  if (config.norm_before_fc && config.fc_norm)
    input_error("{}: norm_before_fc and fc_norm: expected at most one of them, got both", fields.file());
  config.qkv_bias = fields.boolean("attention_bias", false);
  config.norm_before_residual = fields.boolean("norm_before_residual", false);
  config.logit_scale = fields.factor("logit_scale");
}

EagleConfig read_json(const Json& json, std::string_view file, const ModelConfig& teacher, const HeadOptions& options) {
  // speculators nests the layer's fields in transformer_layer_config, SpecForge some switches in eagle_config.
  const Json flat = with_nested(json, {"transformer_layer_config", "eagle_config"});
  const JsonFields fields(flat, file);
  refuse_other_layers(fields);
  if (const auto hidden = fields.integer("target_hidden_size", 1, kMaxWidth))
    check_teacher_field(file, "target_hidden_size", *hidden, teacher.hidden);
  if (const auto vocabulary = fields.integer("vocab_size", 1, kMaxVocabulary))
    check_teacher_field(file, "vocab_size", *vocabulary, teacher.vocabulary);
  EagleConfig config;
  read_sizes(fields, config);
  read_switches(fields, config);
  config.taps = read_taps(fields, teacher.layers, options);
  // SpecForge means something else by this field (whether the final norm precedes the output matrix: here it always
  // does) and always feeds back the raw state, so only files of speculators are taken at their word.
  const bool said = is_speculators(json) && fields.boolean("norm_output", false);
  config.norm_output = options.norm_output.value_or(said);
  config.rope = read_rope(fields, config.head_size, {.theta = options.rope_theta, .of_head = true});
  return config;
}

EagleConfig read_gguf(const Gguf& gguf, const ModelConfig& teacher, const HeadOptions& options) {
  const GgufFields fields(gguf, "eagle3");
  EagleConfig config;
  config.taps = read_taps(fields, teacher.layers, options);
  check_teacher_field(gguf.description(), "eagle3.target_hidden_size",
                      fields.require_integer("target_hidden_size", 1, kMaxWidth), teacher.hidden);
  read_sizes(fields, config);
  config.norm_before_fc = fields.boolean("norm_before_fc", false);
  config.norm_before_residual = fields.boolean("norm_before_residual", false);
  config.norm_output = options.norm_output.value_or(false);
  config.rope = read_rope(fields, config.head_size, {.theta = options.rope_theta, .of_head = true});
  return config;
}

}  // namespace

void refuse_other_layers(const JsonFields& fields) {
  if (const auto activation = fields.string("hidden_act"); activation && *activation != "silu")
    input_error("{}: hidden_act: expected silu, got {}", fields.file(), in_quotes(*activation));
  if (fields.boolean("use_sliding_window", false))
    input_error("{}: use_sliding_window: expected false, got true", fields.file());
  if (const Json* types = fields.find("layer_types"); types && types->is_array())
    for (const Json& type : *types)
      if (type != "full_attention")
        input_error("{}: layer_types: expected full_attention, got {}", fields.file(), type.dump());
}

EagleConfig read_eagle_config(const HeadFiles& files, HeadKind kind, const ModelConfig& teacher,
                              const HeadOptions& options) {
  EagleConfig config;
  if (files.gguf) {
    config = read_gguf(*files.gguf, teacher, options);
  } else if (kind == HeadKind::eagle2) {
    config = read_eagle2_config(files, teacher, options);
  } else {
    config = read_json(parse_json(files.config, files.config_file), files.config_file, teacher, options);
  }
  config.teacher_hidden = teacher.hidden;
  config.teacher_vocabulary = teacher.vocabulary;
  return config;
}

std::vector<std::int64_t> resolve_taps(const std::optional<std::vector<std::int64_t>>& ids, std::int64_t layers,
                                       std::string_view file) {
  if (!ids && layers < kSmallestTeacher)
    input_error("{}: no tap ids: the default taps need a teacher of at least {} layers, got {}; give the option taps",
                file, kSmallestTeacher, layers);
  if (!ids) return {2, layers / 2, layers - 3};
  std::vector<std::int64_t> taps = *ids;
  const bool outputs_of_layers = !taps.empty() && taps[0] == 1 && std::ranges::max(taps) != layers;
  if (outputs_of_layers)
    for (std::int64_t& tap : taps) ++tap;
  check_taps(taps, layers, file);
  return taps;
}

}  // namespace espalier
