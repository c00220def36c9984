#include "model/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "base/error.h"
#include "device/blocks.h"

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

// A matrix on its way to the device: bytes of the file, or our own copy where they had to change.
struct Matrix {
  WeightPart part;
  std::vector<std::byte> owned;
};

// llama.cpp's converter interleaves the two halves of each query and key head for the "llama" architecture (pairs
// 2i, 2i+1 rotate together). Undoing that once here leaves one kind of rotation in the engine: row (half, i) of a head
// is file row (i, half).
void restore_half_split_rows(std::span<std::byte> bytes, std::int64_t head_size, std::int64_t rows) {
  const std::size_t row = bytes.size() / static_cast<std::size_t>(rows);
  const std::vector<std::byte> from(bytes.begin(), bytes.end());
  const std::int64_t half = head_size / 2;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t head = r / head_size, within = r % head_size;
    const std::int64_t source = head * head_size + within % half * 2 + within / half;
    std::memcpy(bytes.data() + static_cast<std::size_t>(r) * row, from.data() + static_cast<std::size_t>(source) * row,
                row);
  }
}

// Reads named tensors, remembers which names were used.
class WeightReader {
 public:
  WeightReader(Device& device, const ModelConfig& config, const TensorSource& source, TensorNaming naming,
               WeightMode mode)
      : device_(device), config_(config), source_(source), naming_(naming), mode_(mode) {}

  std::unique_ptr<const Weight> weight(const TensorName& name, std::int64_t layer, std::int64_t outputs,
                                       std::int64_t inputs) {
    const Matrix matrix = read_matrix(name, layer, outputs, inputs);
    return device_.load_weight(std::span(&matrix.part, 1));
  }

  std::unique_ptr<const Weight> stacked(const TensorName& first, const TensorName& second, std::int64_t layer,
                                        std::int64_t outputs, std::int64_t inputs) {
    const Matrix a = read_matrix(first, layer, outputs, inputs);
    const Matrix b = read_matrix(second, layer, outputs, inputs);
    const WeightPart parts[] = {a.part, b.part};
    return device_.load_weight(parts);
  }

  // Queries and keys: rows in the half-split order, whatever the file has.
  std::unique_ptr<const Weight> rotated_weight(const TensorName& name, std::int64_t layer, std::int64_t heads) {
    Matrix matrix = read_matrix(name, layer, heads * config_.head_size, config_.hidden);
    if (rows_are_interleaved()) {
      if (matrix.owned.empty()) matrix.owned.assign(matrix.part.bytes.begin(), matrix.part.bytes.end());
      restore_half_split_rows(matrix.owned, config_.head_size, matrix.part.outputs);
      matrix.part.bytes = matrix.owned;
    }
    return device_.load_weight(std::span(&matrix.part, 1));
  }

  Tensor rotated_vector(const TensorName& name, std::int64_t layer, std::int64_t heads) {
    std::vector<float> values = read_vector(name, layer, heads * config_.head_size);
    if (rows_are_interleaved())
      restore_half_split_rows(std::as_writable_bytes(std::span(values)), config_.head_size, heads * config_.head_size);
    return to_device(values);
  }

  Tensor vector(const TensorName& name, std::int64_t layer, std::int64_t size) {
    return to_device(read_vector(name, layer, size));
  }

  // What the file has and nobody asked for shows a network that is not the one we compute.
  void refuse_unknown_tensors() const {
    for (const TensorInfo& info : source_.tensors()) {
      const bool derived = info.name.ends_with("rotary_emb.inv_freq") || info.name == "rope_freqs.weight";
      const bool redundant = config_.tied && info.name == kOutput.hugging_face;
      if (!derived && !redundant && !used_.contains(info.name))
        input_error("{}: tensor {} is not part of a {} model", source_.description(), info.name, config_.family);
    }
  }

 private:
  std::string spell(const TensorName& name, std::int64_t layer) const {
    const char* pattern = naming_ == TensorNaming::gguf ? name.gguf : name.hugging_face;
    return fmt::format(fmt::runtime(pattern), layer);
  }

  const TensorInfo& find(const TensorName& name, std::int64_t layer, std::vector<std::int64_t> shape) {
    const std::string spelled = spell(name, layer);
    const TensorInfo* info = source_.find(spelled);
    if (!info) input_error("{}: tensor {} is missing", source_.description(), spelled);
    if (info->shape != shape)
      input_error("{}: tensor {}: expected shape [{}], got [{}]", source_.description(), spelled,
                  fmt::join(shape, ", "), fmt::join(info->shape, ", "));
    if (!is_float(info->type) && !is_block_quantised(info->type))
      input_error("{}: tensor {}: expected weights, got {}", source_.description(), spelled,
                  espalier::name(info->type));
    used_.insert(spelled);
    return *info;
  }

  Matrix read_matrix(const TensorName& name, std::int64_t layer, std::int64_t outputs, std::int64_t inputs) {
    const TensorInfo& info = find(name, layer, {outputs, inputs});
    Matrix matrix{{info.type, outputs, inputs, info.bytes}, {}};
    if (mode_ == WeightMode::f32 && info.type != DType::f32) convert(matrix, DType::f32);
    if (mode_ == WeightMode::q8_0 && is_float(info.type)) {
      if (inputs % 32 != 0)
        input_error("{}: tensor {}: {} columns cannot be quantised to q8_0, expected a multiple of 32",
                    source_.description(), info.name, inputs);
      convert(matrix, DType::q8_0);
    }
    return matrix;
  }

  // Row by row through float.
  static void convert(Matrix& matrix, DType type) {
    const auto from_row = static_cast<std::size_t>(row_bytes(matrix.part.type, matrix.part.inputs));
    const auto to_row = static_cast<std::size_t>(row_bytes(type, matrix.part.inputs));
    std::vector<float> values(static_cast<std::size_t>(matrix.part.inputs));
    std::vector<std::byte> bytes(to_row * static_cast<std::size_t>(matrix.part.outputs));
    for (std::size_t n = 0; n < static_cast<std::size_t>(matrix.part.outputs); ++n) {
      widen_row(matrix.part.type, matrix.part.bytes.subspan(n * from_row, from_row), values);
      const auto to = std::span(bytes).subspan(n * to_row, to_row);
      if (type == DType::q8_0) {
        quantise_row_q8_0(values, to);
      } else {
        std::memcpy(to.data(), values.data(), to_row);
      }
    }
    matrix.owned = std::move(bytes);
    matrix.part.type = type;
    matrix.part.bytes = matrix.owned;
  }

  std::vector<float> read_vector(const TensorName& name, std::int64_t layer, std::int64_t size) {
    const TensorInfo& info = find(name, layer, {size});
    if (!is_float(info.type))
      input_error("{}: tensor {}: expected f32, f16 or bf16, got {}", source_.description(), info.name,
                  espalier::name(info.type));
    std::vector<float> values(static_cast<std::size_t>(size));
    widen_row(info.type, info.bytes, values);
    return values;
  }

  Tensor to_device(const std::vector<float>& values) {
    Tensor tensor = device_.tensor(DType::f32, {static_cast<std::int64_t>(values.size())});
    upload<float>(device_, values, tensor);
    return tensor;
  }

  bool rows_are_interleaved() const { return naming_ == TensorNaming::gguf && config_.family == "llama"; }

  Device& device_;
  const ModelConfig& config_;
  const TensorSource& source_;
  TensorNaming naming_;
  WeightMode mode_;
  std::set<std::string, std::less<>> used_;
};

LayerWeights load_layer(WeightReader& read, const ModelConfig& config, std::int64_t i) {
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
  WeightReader read(device, config, source, naming, mode);
  ModelWeights weights;
  weights.embedding = read.weight(kEmbedding, 0, config.vocabulary, config.hidden);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    weights.layers.push_back(load_layer(read, config, i));
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(config.layers + 1));
  }
  weights.final_norm = read.vector(kFinalNorm, 0, config.hidden);
  if (!config.tied) weights.output = read.weight(kOutput, 0, config.vocabulary, config.hidden);
  read.refuse_unknown_tensors();
  if (progress) progress(1.0);
  return weights;
}

}  // namespace espalier
