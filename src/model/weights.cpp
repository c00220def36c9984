#include "model/weights.h"

#include <string>

#include "base/error.h"

namespace espalier {
namespace {

// A tensor's name in the two containers; {} is the layer.
struct TensorName {
  const char* hugging_face;
  const char* gguf;
};

constexpr TensorName kEmbedding = {"model.embed_tokens.weight", "token_embd.weight"};
constexpr TensorName kFinalNorm = {"model.norm.weight", "output_norm.weight"};
constexpr TensorName kOutput = {"lm_head.weight", "output.weight"};
constexpr TensorName kAttentionNorm = {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"};
constexpr TensorName kQ = {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"};
constexpr TensorName kK = {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"};
constexpr TensorName kV = {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"};
constexpr TensorName kQBias = {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"};
constexpr TensorName kKBias = {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"};
constexpr TensorName kVBias = {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"};
constexpr TensorName kQNorm = {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"};
constexpr TensorName kKNorm = {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"};
constexpr TensorName kAttentionOutput = {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"};
constexpr TensorName kAttentionOutputBias = {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"};
constexpr TensorName kMlpNorm = {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"};
constexpr TensorName kGate = {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"};
constexpr TensorName kUp = {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"};
constexpr TensorName kDown = {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"};

// The tensors of a decoder under the names of its container.
class DecoderReader {
 public:
  DecoderReader(Device& device, const ModelConfig& config, const TensorSource& source, TensorNaming naming,
                WeightMode mode)
      : config_(config), source_(source), naming_(naming), reader_(device, source, mode) {}

  std::unique_ptr<const Weight> weight(const TensorName& name, std::int64_t layer, std::int64_t outputs,
                                       std::int64_t inputs) {
    return reader_.matrix(spell(name, layer), outputs, inputs);
  }
  std::unique_ptr<const Weight> stacked(const TensorName& first, const TensorName& second, std::int64_t layer,
                                        std::int64_t outputs, std::int64_t inputs) {
    return reader_.stacked(spell(first, layer), spell(second, layer), outputs, inputs);
  }
  std::unique_ptr<const Weight> rotated_weight(const TensorName& name, std::int64_t layer, std::int64_t heads) {
    return reader_.rotated_matrix(spell(name, layer), head_rows(heads), config_.hidden);
  }
  Tensor rotated_vector(const TensorName& name, std::int64_t layer, std::int64_t heads) {
    return reader_.rotated_vector(spell(name, layer), head_rows(heads));
  }
  Tensor vector(const TensorName& name, std::int64_t layer, std::int64_t size) {
    return reader_.vector(spell(name, layer), size);
  }

  DType precision(const TensorName& name) const { return reader_.precision(spell(name, 0)); }
  std::int64_t float_matrices() const { return reader_.float_matrices(); }

  void refuse_unknown_tensors() const {
    for (std::string_view name : reader_.unread()) {
      const bool derived = name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight";
      const bool redundant = config_.tied && name == kOutput.hugging_face;
      if (!derived && !redundant)
        input_error("{}: tensor {} is not part of a {} model", source_.description(), name, config_.family);
    }
  }

 private:
  std::string spell(const TensorName& name, std::int64_t layer) const {
    const char* pattern = naming_ == TensorNaming::gguf ? name.gguf : name.hugging_face;
    return fmt::format(fmt::runtime(pattern), layer);
  }
  HeadRows head_rows(std::int64_t heads) const {
    return {.heads = heads,
            .head_size = config_.head_size,
            .interleaved = naming_ == TensorNaming::gguf && config_.family == "llama"};
  }

  const ModelConfig& config_;
  const TensorSource& source_;
  TensorNaming naming_;
  WeightReader reader_;
};

LayerWeights load_layer(DecoderReader& read, const ModelConfig& config, std::int64_t i) {
  const std::int64_t q_width = config.heads * config.head_size, kv_width = config.kv_heads * config.head_size;
  LayerWeights layer;
  layer.attention_norm = read.vector(kAttentionNorm, i, config.hidden);
  layer.q = read.rotated_weight(kQ, i, config.heads);
  layer.k = read.rotated_weight(kK, i, config.kv_heads);
  layer.v = read.weight(kV, i, kv_width, config.hidden);
  if (config.qkv_bias) {
    layer.q_bias = read.rotated_vector(kQBias, i, config.heads);
    layer.k_bias = read.rotated_vector(kKBias, i, config.kv_heads);
    layer.v_bias = read.vector(kVBias, i, kv_width);
  }
  if (config.qk_norm) {
    layer.q_norm = read.vector(kQNorm, i, config.head_size);
    layer.k_norm = read.vector(kKNorm, i, config.head_size);
  }
  layer.output = read.weight(kAttentionOutput, i, config.hidden, q_width);
  if (config.output_bias) layer.output_bias = read.vector(kAttentionOutputBias, i, config.hidden);
  layer.mlp_norm = read.vector(kMlpNorm, i, config.hidden);
  layer.gate_up = read.stacked(kGate, kUp, i, config.intermediate, config.hidden);
  layer.down = read.weight(kDown, i, config.hidden, config.intermediate);
  return layer;
}

}  // namespace

ModelWeights load_weights(Device& device, const ModelConfig& config, const TensorSource& source, TensorNaming naming,
                          WeightMode mode, const Progress& progress) {
  DecoderReader read(device, config, source, naming, mode);
  ModelWeights weights;
  weights.embedding = read.weight(kEmbedding, 0, config.vocabulary, config.hidden);
  // Where it is not tied, rows are looked up in it and multiplied with none of it.
  const std::int64_t looked_up = config.tied ? 0 : read.float_matrices();
  for (std::int64_t i = 0; i < config.layers; ++i) {
    weights.layers.push_back(load_layer(read, config, i));
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(config.layers + 1));
  }
  weights.final_norm = read.vector(kFinalNorm, 0, config.hidden);
  if (!config.tied) weights.output = read.weight(kOutput, 0, config.vocabulary, config.hidden);
  weights.embedding_precision = read.precision(kEmbedding);
  weights.output_precision = read.precision(config.tied ? kEmbedding : kOutput);
  weights.float_linears = read.float_matrices() > looked_up;
  read.refuse_unknown_tensors();
  if (progress) progress(1.0);
  return weights;
}

}  // namespace espalier
