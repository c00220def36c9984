#include "model/config.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/rope.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

std::string read_architecture(const JsonFields& fields) {
  const Json* list = fields.find("architectures");
  if (!list || !list->is_array() || list->empty() || !(*list)[0].is_string())
    input_error("{}: architectures: expected a list with one name", fields.file());
  return (*list)[0].get<std::string>();
}

std::string family_of(const std::string& architecture, std::string_view file) {
  constexpr std::array<std::array<std::string_view, 2>, 5> kFamilies = {{{"LlamaForCausalLM", "llama"},
                                                                         {"MistralForCausalLM", "mistral"},
                                                                         {"Qwen2ForCausalLM", "qwen2"},
                                                                         {"Qwen3ForCausalLM", "qwen3"},
                                                                         {"PanguEmbeddedForCausalLM", "pangu"}}};
  for (const auto& [name, family] : kFamilies)
    if (architecture == name) return std::string(family);
  input_error(
      "{}: architectures: {} is not supported, expected LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
      "Qwen3ForCausalLM or PanguEmbeddedForCausalLM",
      file, architecture);
}

// A field that is there and switched on marks a network we do not compute, under an architecture name that we know.
bool is_active(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  return true;
}

void refuse_variants(const JsonFields& fields, const std::string& family) {
  constexpr std::array kForeign = {
      "n_routed_experts",         "num_local_experts",  "num_experts", "kv_lora_rank", "param_sink_number",
      "param_sink_with_value",    "qk_nope_dim",        "qk_rope_dim", "v_channels",   "sandwich_norm",
      "num_nextn_predict_layers", "quantization_config"};
  for (const char* key : kForeign)
    if (const Json* value = fields.find(key); value && is_active(*value))
      input_error("{}: {} = {}: this variant of {} is not supported", fields.file(), key, value->dump(), family);
  for (const char* key : {"rotary_percent", "partial_rotary_factor"})
    if (const Json* value = fields.find(key); value && value->is_number() && value->get<double>() != 1.0)
      input_error("{}: {} = {}: partial rotation is not supported", fields.file(), key, value->dump());
  if (!fields.boolean("is_causal", true))
    input_error("{}: is_causal = false: only causal models are supported", fields.file());
  if (fields.boolean("mlp_bias", false)) input_error("{}: mlp_bias = true is not supported", fields.file());
  const std::string activation = fields.string("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish")
    input_error("{}: hidden_act: expected silu, got {}", fields.file(), activation);
  if (family == "pangu" && fields.find("rope_scaling"))
    input_error("{}: rope_scaling: this variant of openPangu is not supported", fields.file());
}

void read_sliding_window(const JsonFields& fields, ModelConfig& config) {
  const auto window = fields.integer("sliding_window", 1, kMaxContext);
  const bool used = window && fields.boolean("use_sliding_window", config.family == "mistral");
  // All layers are alike here: a model that mixes full and sliding attention is another network.
  const char* expected = used ? "sliding_attention" : "full_attention";
  if (const Json* types = fields.find("layer_types"); types && types->is_array())
    for (const Json& type : *types)
      if (type != expected)
        input_error("{}: layer_types: expected {} in every layer, got {}", fields.file(), expected, type.dump());
  if (!used) return;
  if (config.family != "mistral")
    input_error("{}: use_sliding_window = true is not supported for {}", fields.file(), config.family);
  config.sliding_window = *window;
}

std::string gguf_family(const std::string& architecture, const Gguf& gguf) {
  if (architecture == "llama" || architecture == "qwen2" || architecture == "qwen3") return architecture;
  if (architecture == "pangu-embedded") return "pangu";
  input_error("{}: general.architecture {} is not supported, expected llama, qwen2, qwen3 or pangu-embedded",
              gguf.description(), architecture);
}

}  // namespace

ModelConfig read_config(const Json& json, std::string_view file) {
  const JsonFields fields(json, file);
  ModelConfig config;
  config.family = family_of(read_architecture(fields), file);
  refuse_variants(fields, config.family);
  config.layers = fields.require_integer("num_hidden_layers", 1, kMaxLayers);
  config.hidden = fields.require_integer("hidden_size", 1, kMaxWidth);
  config.intermediate = fields.require_integer("intermediate_size", 1, kMaxWidth);
  config.heads = fields.require_integer("num_attention_heads", 1, kMaxWidth);
  config.kv_heads = fields.integer("num_key_value_heads", 1, config.heads).value_or(config.heads);
  const auto head_size = fields.integer("head_dim", 1, kMaxWidth);
  config.head_size = head_size ? *head_size : default_head_size(config.hidden, config.heads, file);
  config.vocabulary = fields.require_integer("vocab_size", 1, kMaxVocabulary);
  config.context = fields.integer("max_position_embeddings", 1, kMaxContext).value_or(2048);
  config.rms_eps = static_cast<float>(fields.number("rms_norm_eps").value_or(1e-6));
  // Qwen2 has query, key and value biases without saying so; Llama and Pangu files say so, for all four projections.
  const bool attention_bias = fields.boolean("attention_bias", fields.boolean("bias", false));
  config.qkv_bias = fields.boolean("qkv_bias", config.family == "qwen2" || attention_bias);
  config.output_bias = config.family != "qwen2" && attention_bias;
  config.qk_norm = config.family == "qwen3";
  config.tied = fields.boolean("tie_word_embeddings", false);
  check_heads({.heads = config.heads, .kv_heads = config.kv_heads, .head_size = config.head_size}, file);
  read_sliding_window(fields, config);
  config.inverse_frequencies = read_rope(fields, config.head_size, {}).inverse_frequencies;
  return config;
}

ModelConfig read_config(const Gguf& gguf) {
  const std::string* architecture = gguf.string("general.architecture");
  if (!architecture) input_error("{}: general.architecture is missing", gguf.description());
  const GgufFields fields(gguf, *architecture);
  ModelConfig config;
  config.family = gguf_family(*architecture, gguf);
  if (fields.integer("expert_count", 0, kMaxWidth).value_or(0) > 0)
    input_error("{}: {}.expert_count: mixtures of experts are not supported", gguf.description(), *architecture);
  config.layers = fields.require_integer("block_count", 1, kMaxLayers);
  config.hidden = fields.require_integer("embedding_length", 1, kMaxWidth);
  config.intermediate = fields.require_integer("feed_forward_length", 1, kMaxWidth);
  config.heads = fields.require_integer("attention.head_count", 1, kMaxWidth);
  config.kv_heads = fields.integer("attention.head_count_kv", 1, config.heads).value_or(config.heads);
  const auto head_size = fields.integer("attention.key_length", 1, kMaxWidth);
  config.head_size = head_size ? *head_size : default_head_size(config.hidden, config.heads, gguf.description());
  if (const auto values = fields.integer("attention.value_length", 1, kMaxWidth); values && *values != config.head_size)
    input_error("{}: attention.value_length {}: expected the key length {}", gguf.description(), *values,
                config.head_size);
  const TensorInfo* embedding = gguf.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    input_error("{}: token_embd.weight: expected a matrix, {}", gguf.description(),
                embedding ? "got another shape" : "missing");
  config.vocabulary = embedding->shape[0];
  if (config.vocabulary > kMaxVocabulary)
    input_error("{}: token_embd.weight: {} rows, expected at most {}", gguf.description(), config.vocabulary,
                kMaxVocabulary);
  config.context = fields.integer("context_length", 1, kMaxContext).value_or(2048);
  config.rms_eps = static_cast<float>(fields.require_number("attention.layer_norm_rms_epsilon"));
  // GGUF files do not announce biases; whether the tensors are there is the announcement.
  config.qkv_bias = gguf.find("blk.0.attn_q.bias") != nullptr;
  config.output_bias = gguf.find("blk.0.attn_output.bias") != nullptr;
  if (config.family == "pangu" && !(config.qkv_bias && config.output_bias))
    input_error("{}: blk.0.attn_output.bias or blk.0.attn_q.bias is missing, openPangu needs both", gguf.description());
  config.qk_norm = config.family == "qwen3";
  config.tied = gguf.find("output.weight") == nullptr;
  config.sliding_window = fields.integer("attention.sliding_window", 0, kMaxContext).value_or(0);
  check_heads({.heads = config.heads, .kv_heads = config.kv_heads, .head_size = config.head_size}, gguf.description());
  config.inverse_frequencies = read_rope(fields, config.head_size, {}).inverse_frequencies;
  return config;
}

}  // namespace espalier
