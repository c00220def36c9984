#include "model/eagle_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "model/draft_vocabulary.h"
#include "model/eagle3_vocabulary.h"
#include "model/eagle_names.h"
#include "model/weight_reader.h"

namespace espalier {
namespace {

// The tensors of a head under their canonical names.
class EagleReader {
 public:
  EagleReader(Device& device, const HeadFiles& files, const EagleConfig& config, WeightMode mode)
      : device_(device),
        source_(*files.tensors),
        config_(config),
        interleaved_(files.gguf != nullptr),
        names_(source_, files.gguf != nullptr),
        reader_(device, source_, mode, OddRows::keep_as_stored) {}

  const EagleNames& names() const { return names_; }

  Tensor vector(const std::string& name, std::int64_t size) { return reader_.vector(names_.spell(name), size); }
  std::unique_ptr<const Weight> matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    return reader_.matrix(names_.spell(name), outputs, inputs);
  }
  std::unique_ptr<const Weight> matrix_rows(const std::string& name, std::int64_t outputs, std::int64_t inputs,
                                            std::span<const std::int32_t> rows) {
    return reader_.matrix_rows(names_.spell(name), outputs, inputs, rows);
  }
  std::unique_ptr<const Weight> rows_of(const Weight& weight, std::span<const std::int32_t> rows, WeightMode mode) {
    return copy_rows(device_, weight, rows, mode);
  }
  std::unique_ptr<const Weight> stacked(const std::string& first, const std::string& second, std::int64_t outputs,
                                        std::int64_t inputs) {
    return reader_.stacked(names_.spell(first), names_.spell(second), outputs, inputs);
  }
  std::unique_ptr<const Weight> rotated_matrix(const std::string& name, std::int64_t heads, std::int64_t inputs) {
    return reader_.rotated_matrix(names_.spell(name), head_rows(heads), inputs);
  }
  Tensor rotated_vector(const std::string& name, std::int64_t heads) {
    return reader_.rotated_vector(names_.spell(name), head_rows(heads));
  }

  void refuse_unknown_tensors() const {
    for (std::string_view name : reader_.unread())
      if (third() ? !names_.beside_the_weights(name) : !compared_.contains(name))
        input_error("{}: tensor {} is unknown, expected the tensors of an EAGLE-{} head", source_.description(),
                    in_quotes(name), third() ? 3 : 2);
  }

  // A copy of what the teacher has.
  void compare(const std::string& name, const TeacherMatrix& teacher) {
    const TensorInfo* copy = names_.find(name);
    if (!copy) return;
    check_rows_of_teacher(device_, *copy, teacher, source_.description(), copy->name);
    compared_.insert(copy->name);
  }

 private:
  bool third() const { return config_.generation == EagleGeneration::third; }
  HeadRows head_rows(std::int64_t heads) const {
    return {.heads = heads, .head_size = config_.head_size, .interleaved = interleaved_};
  }

  Device& device_;
  const TensorSource& source_;
  const EagleConfig& config_;
  bool interleaved_;
  EagleNames names_;
  WeightReader reader_;
  std::set<std::string, std::less<>> compared_;
};

LayerWeights load_layer(EagleReader& read, const EagleConfig& config, std::int64_t index) {
  const std::string layer = fmt::format("layers.{}.", index), attention = layer + "self_attn.", mlp = layer + "mlp.";
  const std::int64_t kv_width = config.kv_heads * config.head_size;
  const bool third = config.generation == EagleGeneration::third;
  const std::int64_t inputs = index == 0 && third ? 2 * config.hidden : config.hidden;  // [token; feature], then plain
  LayerWeights weights;
  if (index > 0 || third) weights.attention_norm = read.vector(layer + "input_layernorm.weight", config.hidden);
  weights.q = read.rotated_matrix(attention + "q_proj.weight", config.heads, inputs);
  weights.k = read.rotated_matrix(attention + "k_proj.weight", config.kv_heads, inputs);
  weights.v = read.matrix(attention + "v_proj.weight", kv_width, inputs);
  if (config.qkv_bias) {
    weights.q_bias = read.rotated_vector(attention + "q_proj.bias", config.heads);
    weights.k_bias = read.rotated_vector(attention + "k_proj.bias", config.kv_heads);
    weights.v_bias = read.vector(attention + "v_proj.bias", kv_width);
  }
  // Qwen3-like heads have these without saying so.
  if (third && read.names().has("layers.0.self_attn.q_norm.weight")) {
    weights.q_norm = read.vector(attention + "q_norm.weight", config.head_size);
    weights.k_norm = read.vector(attention + "k_norm.weight", config.head_size);
  }
  weights.output = read.matrix(attention + "o_proj.weight", config.hidden, config.heads * config.head_size);
  weights.mlp_norm = read.vector(layer + "post_attention_layernorm.weight", config.hidden);
  weights.gate_up = read.stacked(mlp + "gate_proj.weight", mlp + "up_proj.weight", config.intermediate, config.hidden);
  weights.down = read.matrix(mlp + "down_proj.weight", config.hidden, config.intermediate);
  return weights;
}

void load_fusion(EagleReader& read, const EagleConfig& config, EagleWeights& weights) {
  if (config.norm_before_fc) weights.input_norm = read.vector("input_norm.weight", config.feature_width());
  if (config.fc_norm)
    for (std::size_t i = 0; i < config.taps.size(); ++i)
      weights.tap_norms.push_back(read.vector(fmt::format("fc_norm.{}.weight", i), config.teacher_hidden));
  weights.fc = read.matrix("fc.weight", config.hidden, config.feature_width());
  weights.hidden_norm = read.vector("layers.0.hidden_norm.weight", config.hidden);
  weights.final_norm = read.vector("norm.weight", config.hidden);
}

// In a draft step, not before it.
void load_pairing(EagleReader& read, const EagleConfig& config, EagleWeights& weights) {
  weights.fc = read.matrix("fc.weight", config.hidden, 2 * config.hidden);
  if (config.fc_bias) weights.fc_bias = read.vector("fc.bias", config.hidden);
}

void refuse_to_share_between_widths(const EagleReader& read, const EagleConfig& config, const std::string& name,
                                    std::string_view file) {
  if (config.hidden != config.teacher_hidden)
    input_error("{}: tensor {} is missing, and the teacher's cannot be shared: expected hidden size {}, got {}", file,
                read.names().spell(name), config.teacher_hidden, config.hidden);
}

// Null where the file has none and the teacher's fits.
std::unique_ptr<const Weight> load_or_share(EagleReader& read, const EagleConfig& config, const std::string& name,
                                            std::string_view file) {
  if (const TensorInfo* info = read.names().find(name))
    return read.matrix(name, info->shape.empty() ? 1 : std::max<std::int64_t>(info->shape[0], 1), config.hidden);
  refuse_to_share_between_widths(read, config, name, file);
  return nullptr;
}

void load_embedding(EagleReader& read, const EagleConfig& config, std::string_view file, EagleWeights& weights) {
  const std::int64_t vocabulary = config.teacher_vocabulary;
  weights.own_embedding = load_or_share(read, config, "embed_tokens.weight", file);
  if (weights.own_embedding && weights.own_embedding->outputs() < vocabulary)
    input_error("{}: embed_tokens.weight: expected at least {} rows, got {}", file, vocabulary,
                weights.own_embedding->outputs());
}

// Rows of the head's own output matrix, or of the teacher's.
std::int64_t output_rows(const EagleReader& read, const EagleConfig& config, std::string_view file) {
  const std::int64_t vocabulary = config.teacher_vocabulary;
  const TensorInfo* output = read.names().find("lm_head.weight");
  if (!output || output->shape.empty()) return vocabulary;
  if (output->shape[0] > vocabulary)
    input_error("{}: lm_head.weight: expected at most {} rows, got {}", file, vocabulary, output->shape[0]);
  return output->shape[0];
}

// The output matrix, whole or the rows of the most frequent tokens, with the tokens that its rows stand for.
void load_output(EagleReader& read, const EagleConfig& config, const HeadFiles& files, const HeadOptions& options,
                 const Weight& teacher_output, EagleWeights& weights) {
  const std::string_view file = files.tensors->description();
  const std::string name = "lm_head.weight";
  const std::int64_t all = output_rows(read, config, file);
  weights.target_ids = read_target_ids({.d2t = read.names().find("d2t"),
                                        .t2d = read.names().find("t2d"),
                                        .meaning = files.gguf ? D2tMeaning::token : D2tMeaning::offset,
                                        .draft_vocabulary = all,
                                        .vocabulary = config.teacher_vocabulary},
                                       file);
  const auto rows = most_frequent_rows(files, options, weights.target_ids);
  if (!rows) {
    weights.own_output = load_or_share(read, config, name, file);
    return;
  }
  weights.target_ids = picked(weights.target_ids, *rows);
  if (read.names().has(name)) {
    weights.own_output = read.matrix_rows(name, all, config.hidden, *rows);
  } else {
    refuse_to_share_between_widths(read, config, name, file);
    weights.own_output = read.rows_of(teacher_output, *rows, options.weights);
  }
}

// The teacher's output matrix, whole or the rows of the most frequent tokens.
void take_output(EagleReader& read, const EagleConfig& config, const HeadFiles& files, const HeadOptions& options,
                 const Weight& teacher_output, EagleWeights& weights) {
  weights.target_ids.resize(static_cast<std::size_t>(config.teacher_vocabulary));
  std::iota(weights.target_ids.begin(), weights.target_ids.end(), 0);
  const auto rows = most_frequent_rows(files, options, weights.target_ids);
  if (!rows) return;
  weights.target_ids = picked(weights.target_ids, *rows);
  weights.own_output = read.rows_of(teacher_output, *rows, options.weights);
}

}  // namespace

EagleWeights load_eagle_weights(Device& device, const HeadFiles& files, const EagleConfig& config,
                                const HeadOptions& options, const ModelWeights& teacher) {
  EagleReader read(device, files, config, options.weights);
  EagleWeights weights;
  const bool third = config.generation == EagleGeneration::third;
  third ? load_fusion(read, config, weights) : load_pairing(read, config, weights);
  const std::int64_t layers = std::max<std::int64_t>(read.names().layers(), 1);
  for (std::int64_t i = 0; i < layers; ++i) weights.layers.push_back(load_layer(read, config, i));
  if (third) {
    load_embedding(read, config, files.tensors->description(), weights);
    load_output(read, config, files, options, teacher.output_matrix(), weights);
  } else {
    read.compare("embed_tokens.weight", teacher.known_embedding());
    read.compare("lm_head.weight", teacher.known_output());
    take_output(read, config, files, options, teacher.output_matrix(), weights);
  }
  read.refuse_unknown_tensors();
  return weights;
}

}  // namespace espalier
