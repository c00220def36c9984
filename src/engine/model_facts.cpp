#include "engine/model_facts.h"

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/error.h"
#include "device/ascend/ascend_device.h"
#include "model/transformer.h"
#include "text/model_text.h"

namespace espalier {
namespace {

std::int64_t element_count(const TensorInfo& info) {
  std::int64_t product = 1;
  for (std::int64_t extent : info.shape) product *= extent;
  return product;
}

nlohmann::ordered_json describe_tensors(const TensorSource& source) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_type;  // count, bytes
  std::int64_t elements = 0, bytes = 0, on_npu = 0;
  for (const TensorInfo& info : source.tensors()) {
    auto& [count, size] = by_type[std::string(name(info.type))];
    ++count;
    size += static_cast<std::int64_t>(info.bytes.size());
    elements += element_count(info);
    bytes += static_cast<std::int64_t>(info.bytes.size());
    on_npu += ascend::stored_bytes(info.type, element_count(info));
  }
  nlohmann::ordered_json types;
  for (const auto& [type, figures] : by_type) types[type] = {{"tensors", figures.first}, {"bytes", figures.second}};
  // An Ascend NPU has no block formats: they are dequantised when they are loaded.
  return {{"tensors", source.tensors().size()},
          {"elements", elements},
          {"bytes", bytes},
          {"bytes_on_ascend", on_npu},
          {"types", types}};
}

nlohmann::ordered_json describe_config(const ModelConfig& config) {
  return {{"family", config.family},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"intermediate", config.intermediate},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_size", config.head_size},
          {"vocabulary", config.vocabulary},
          {"context", config.context},
          {"rms_eps", config.rms_eps},
          {"qkv_bias", config.qkv_bias},
          {"output_bias", config.output_bias},
          {"qk_norm", config.qk_norm},
          {"tied_embeddings", config.tied},
          {"sliding_window", config.sliding_window},
          {"kv_bytes_per_token_f16", 4 * config.layers * config.kv_heads * config.head_size}};
}

nlohmann::ordered_json describe_text(const ModelText& text) {
  nlohmann::ordered_json stops = nlohmann::ordered_json::array();
  for (TokenId id : text.stop_tokens) stops.push_back({{"id", id}, {"text", text.tokenizer->bytes(id, false)}});
  return {{"tokens", text.tokenizer->vocabulary_size()},
          {"bos", text.bos_text},
          {"eos", text.eos_text},
          {"adds_bos", text.tokenizer->add_bos()},
          {"stop_tokens", stops},
          {"chat_template", text.chat_template.has_value()}};
}

nlohmann::ordered_json describe_text_or_problem(const std::filesystem::path& path) {
  try {
    return describe_text(load_model_text(path));
  } catch (const InputError& error) {
    return {{"problem", error.what()}};
  }
}

std::string facts_text(const nlohmann::ordered_json& facts, const std::string& margin) {
  std::string text;
  for (const auto& [key, value] : facts.items())
    text += value.is_object()
                ? fmt::format("{}{}:\n{}", margin, key, facts_text(value, margin + "  "))
                : fmt::format("{}{}: {}\n", margin, key, value.is_string() ? value.get<std::string>() : value.dump());
  return text;
}

}  // namespace

nlohmann::ordered_json describe_model(const std::filesystem::path& path, const TensorSource& source) {
  nlohmann::ordered_json object = {{"file", path.string()},
                                   {"format", std::filesystem::is_directory(path) ? "safetensors" : "gguf"},
                                   {"arithmetic", kArithmetic}};
  object["model"] = describe_config(load_config(path));
  object["weights"] = describe_tensors(source);
  object["text"] = describe_text_or_problem(path);
  return object;
}

std::string tensors_text(const TensorSource& source) {
  std::string text;
  for (const TensorInfo& info : source.tensors())
    text += fmt::format("  {:<44} {:<5} {}\n", info.name, name(info.type), fmt::join(info.shape, " x "));
  return text;
}

std::string facts_text(const nlohmann::ordered_json& facts) {
  return facts_text(facts, "");
}

}  // namespace espalier
