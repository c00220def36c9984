#include "testing/random_heads.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "format/testing/safetensors_builder.h"

namespace espalier::testing {
namespace {

class RandomTensors {
 public:
  explicit RandomTensors(std::uint32_t seed) : random_(seed) {}

  // A matrix keeps the size of what goes through it, roughly.
  void matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs) {
    floats(name, {outputs, inputs}, 0, 1.5f / std::sqrt(static_cast<float>(inputs)));
  }
  void norm(const std::string& name, std::int64_t size) { floats(name, {size}, 1, 0.2f); }
  void bias(const std::string& name, std::int64_t size) { floats(name, {size}, 0, 0.3f); }

  template <typename T>
  void values(const std::string& name, DType type, const std::vector<T>& values) {
    builder_.tensor(name, type, {static_cast<std::int64_t>(values.size())},
                    std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }

  bool coin() { return random_() % 2 == 0; }
  void write(const std::filesystem::path& file) const { builder_.write(file); }

 private:
  void floats(const std::string& name, const std::vector<std::int64_t>& shape, float mean, float deviation) {
    std::size_t count = 1;
    for (std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    std::vector<float> values(count);
    for (float& value : values) value = mean + deviation * (static_cast<float>(random_() % 2001) / 1000.0f - 1.0f);
    builder_.tensor(name, DType::f32, shape,
                    std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  }

  std::mt19937 random_;
  SafetensorsBuilder builder_;
};

void write_json(const std::filesystem::path& file, const nlohmann::json& value) {
  std::ofstream(file) << value.dump(2) << '\n';
}

}  // namespace

void write_random_eagle3(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed) {
  const std::int64_t hidden = teacher.hidden, heads = 4, kv_heads = 2, head_size = 8, width = 48;
  RandomTensors tensors(seed);
  tensors.matrix("fc.weight", hidden, 3 * hidden);
  for (const char* name : {"input_layernorm", "hidden_norm", "post_attention_layernorm"})
    tensors.norm(std::string("midlayer.") + name + ".weight", hidden);
  tensors.matrix("midlayer.self_attn.q_proj.weight", heads * head_size, 2 * hidden);
  tensors.matrix("midlayer.self_attn.k_proj.weight", kv_heads * head_size, 2 * hidden);
  tensors.matrix("midlayer.self_attn.v_proj.weight", kv_heads * head_size, 2 * hidden);
  tensors.matrix("midlayer.self_attn.o_proj.weight", hidden, heads * head_size);
  tensors.matrix("midlayer.mlp.gate_proj.weight", width, hidden);
  tensors.matrix("midlayer.mlp.up_proj.weight", width, hidden);
  tensors.matrix("midlayer.mlp.down_proj.weight", hidden, width);
  tensors.norm("norm.weight", hidden);
  std::vector<std::int64_t> offsets;
  std::vector<std::uint8_t> members(static_cast<std::size_t>(teacher.vocabulary));
  for (std::size_t id = 0; id < members.size(); ++id)
    if (tensors.coin()) {
      members[id] = 1;
      offsets.push_back(static_cast<std::int64_t>(id - offsets.size()));
    }
  const auto draft_vocabulary = static_cast<std::int64_t>(offsets.size());
  tensors.matrix("lm_head.weight", draft_vocabulary, hidden);
  tensors.values("d2t", DType::i64, offsets);
  tensors.values("t2d", DType::u8, members);
  tensors.write(folder / "model.safetensors");
  write_json(folder / "config.json", {{"architectures", {"LlamaForCausalLM"}},
                                      {"model_type", "llama"},
                                      {"hidden_size", hidden},
                                      {"intermediate_size", width},
                                      {"num_attention_heads", heads},
                                      {"num_key_value_heads", kv_heads},
                                      {"head_dim", head_size},
                                      {"num_hidden_layers", 1},
                                      {"hidden_act", "silu"},
                                      {"rms_norm_eps", 1e-5},
                                      {"vocab_size", teacher.vocabulary},
                                      {"draft_vocab_size", draft_vocabulary},
                                      {"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {0, 2, 3}}}}});
}

namespace {

constexpr std::int64_t kEagle2Heads = 4, kEagle2KvHeads = 2, kEagle2Width = 48;

void write_eagle2_config(const std::filesystem::path& folder, const ModelConfig& teacher) {
  write_json(folder / "config.json", {{"architectures", {"LlamaForCausalLM"}},
                                      {"model_type", "llama"},
                                      {"hidden_size", teacher.hidden},
                                      {"intermediate_size", kEagle2Width},
                                      {"num_attention_heads", kEagle2Heads},
                                      {"num_key_value_heads", kEagle2KvHeads},
                                      {"num_hidden_layers", 1},
                                      {"hidden_act", "silu"},
                                      {"rms_norm_eps", 1e-5},
                                      {"vocab_size", teacher.vocabulary},
                                      {"bias", false}});
}

// What its layer has beside biases: the name of each matrix with its shape.
std::vector<std::pair<std::string, std::pair<std::int64_t, std::int64_t>>> eagle2_matrices(std::int64_t hidden) {
  const std::int64_t kv_width = kEagle2KvHeads * hidden / kEagle2Heads;
  return {{"self_attn.q_proj", {hidden, hidden}},    {"self_attn.k_proj", {kv_width, hidden}},
          {"self_attn.v_proj", {kv_width, hidden}},  {"self_attn.o_proj", {hidden, hidden}},
          {"mlp.gate_proj", {kEagle2Width, hidden}}, {"mlp.up_proj", {kEagle2Width, hidden}},
          {"mlp.down_proj", {hidden, kEagle2Width}}};
}

}  // namespace

void write_random_eagle2(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed) {
  const std::int64_t hidden = teacher.hidden;
  RandomTensors tensors(seed);
  tensors.matrix("fc.weight", hidden, 2 * hidden);
  tensors.bias("fc.bias", hidden);
  for (const auto& [name, shape] : eagle2_matrices(hidden)) {
    tensors.matrix("layers.0." + name + ".weight", shape.first, shape.second);
    const bool biased = seed % 2 == 1 && name.starts_with("self_attn.") && !name.ends_with("o_proj");
    if (biased) tensors.bias("layers.0." + name + ".bias", shape.first);
  }
  tensors.norm("layers.0.post_attention_layernorm.weight", hidden);
  tensors.write(folder / "model.safetensors");
  write_eagle2_config(folder, teacher);
}

void write_echoing_eagle2(const std::filesystem::path& folder, const ModelConfig& teacher) {
  const std::int64_t hidden = teacher.hidden;
  SafetensorsBuilder tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    tensors.tensor(name, DType::f32, std::move(shape),
                   std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
  };
  std::vector<float> second_half(static_cast<std::size_t>(2 * hidden * hidden));
  for (std::int64_t i = 0; i < hidden; ++i) second_half[static_cast<std::size_t>(i * 2 * hidden + hidden + i)] = 1;
  add("fc.weight", {hidden, 2 * hidden}, second_half);
  for (const auto& [name, shape] : eagle2_matrices(hidden))
    add("layers.0." + name + ".weight", {shape.first, shape.second},
        std::vector<float>(static_cast<std::size_t>(shape.first * shape.second)));
  add("layers.0.post_attention_layernorm.weight", {hidden}, std::vector<float>(static_cast<std::size_t>(hidden), 1.0f));
  tensors.write(folder / "model.safetensors");
  write_eagle2_config(folder, teacher);
}

void write_random_medusa(const std::filesystem::path& folder, const ModelConfig& teacher, std::uint32_t seed) {
  RandomTensors tensors(seed);
  const int heads = 3;
  for (int k = 0; k < heads; ++k) {
    const std::string prefix = std::to_string(k) + ".0.linear.";
    tensors.matrix(prefix + "weight", teacher.hidden, teacher.hidden);
    tensors.norm(prefix + "bias", teacher.hidden);
  }
  tensors.write(folder / "medusa_lm_head.safetensors");
  write_json(folder / "config.json", {{"medusa_num_heads", heads}, {"medusa_num_layers", 1}});
}

}  // namespace espalier::testing
