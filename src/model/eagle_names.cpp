#include "model/eagle_names.h"

#include <optional>
#include <set>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

struct OtherName {
  std::string_view other;
  std::string_view canonical;
};

constexpr OtherName kGgufNames[] = {
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "input_norm.weight"},
    {"output_norm.weight", "norm.weight"},
    {"output.weight", "lm_head.weight"},
    {"token_embd.weight", "embed_tokens.weight"},
    {"d2t", "d2t"},
    {"blk.0.attn_norm.weight", "layers.0.input_layernorm.weight"},
    {"blk.0.attn_norm_2.weight", "layers.0.hidden_norm.weight"},
    {"blk.0.attn_q.weight", "layers.0.self_attn.q_proj.weight"},
    {"blk.0.attn_k.weight", "layers.0.self_attn.k_proj.weight"},
    {"blk.0.attn_v.weight", "layers.0.self_attn.v_proj.weight"},
    {"blk.0.attn_output.weight", "layers.0.self_attn.o_proj.weight"},
    {"blk.0.ffn_norm.weight", "layers.0.post_attention_layernorm.weight"},
    {"blk.0.ffn_gate.weight", "layers.0.mlp.gate_proj.weight"},
    {"blk.0.ffn_up.weight", "layers.0.mlp.up_proj.weight"},
    {"blk.0.ffn_down.weight", "layers.0.mlp.down_proj.weight"},
};

constexpr OtherName kOldNames[] = {{"aux_norm_low.weight", "fc_norm.0.weight"},
                                   {"aux_norm_mid.weight", "fc_norm.1.weight"},
                                   {"aux_norm_high.weight", "fc_norm.2.weight"}};

constexpr OtherName kOldPrefixes[] = {{"midlayer.", "layers.0."}, {"transformer.", "layers.0."}, {"fusion_fc.", "fc."}};
constexpr std::string_view kWrappers[] = {"draft_model.", "model.", "model."};  // vLLM's repackaging has two of them
constexpr std::string_view kLayers = "layers.";

std::optional<std::string> canonical_gguf(std::string_view name) {
  for (const auto& [gguf, canonical] : kGgufNames)
    if (name == gguf) return std::string(canonical);
  return std::nullopt;
}

std::optional<std::string> canonical_hugging_face(std::string_view name) {
  for (std::string_view wrapper : kWrappers)
    if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
  for (const auto& [old, canonical] : kOldNames)
    if (name == old) return std::string(canonical);
  for (const auto& [old, canonical] : kOldPrefixes)
    if (name.starts_with(old)) return std::string(canonical) + std::string(name.substr(old.size()));
  return std::string(name);
}

// The digits of "layers.12.": nothing for other names.
std::string_view layer_number(std::string_view name) {
  if (!name.starts_with(kLayers)) return {};
  name.remove_prefix(kLayers.size());
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

}  // namespace

EagleNames::EagleNames(const TensorSource& source, bool gguf) : source_(&source), gguf_(gguf) {
  std::set<std::string, std::less<>> layers;
  for (const TensorInfo& info : source.tensors()) {
    const auto canonical = gguf ? canonical_gguf(info.name) : canonical_hugging_face(info.name);
    if (!canonical) continue;
    const auto [it, inserted] = spelled_.emplace(*canonical, info.name);
    if (!inserted)
      input_error("{}: tensors {} and {}: expected one of them, both are {}", source.description(),
                  in_quotes(it->second), in_quotes(info.name), in_quotes(*canonical));
    if (const std::string_view number = layer_number(*canonical); !number.empty()) layers.emplace(number);
  }
  layers_ = static_cast<std::int64_t>(layers.size());
}

std::string EagleNames::spell(std::string_view canonical) const {
  if (const auto it = spelled_.find(canonical); it != spelled_.end()) return it->second;
  if (gguf_)
    for (const auto& [gguf, name] : kGgufNames)
      if (name == canonical) return std::string(gguf);
  return std::string(canonical);
}

bool EagleNames::beside_the_weights(std::string_view spelled) const {
  if (gguf_) return spelled == "d2t" || spelled == "rope_freqs.weight";
  const auto canonical = canonical_hugging_face(spelled);
  return canonical == "d2t" || canonical == "t2d" || canonical->starts_with("verifier_");
}

const TensorInfo* EagleNames::find(std::string_view canonical) const {
  const auto it = spelled_.find(canonical);
  return it == spelled_.end() ? nullptr : source_->find(it->second);
}

}  // namespace espalier
