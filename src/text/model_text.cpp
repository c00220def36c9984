#include "text/model_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

void add_stop(ModelText& text, std::optional<std::int64_t> id) {
  if (!id) return;
  if (*id < 0 || *id >= text.tokenizer->vocabulary_size())
    input_error("end-of-sequence id {}: the vocabulary has {}", *id, text.tokenizer->vocabulary_size());
  const auto token = static_cast<TokenId>(*id);
  if (std::find(text.stop_tokens.begin(), text.stop_tokens.end(), token) == text.stop_tokens.end())
    text.stop_tokens.push_back(token);
}

std::string spell(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? tokenizer.bytes(*id, false) : std::string();
}

void set_special_texts(ModelText& text) {
  text.bos_text = spell(*text.tokenizer, text.tokenizer->bos());
  text.eos_text = spell(*text.tokenizer, text.tokenizer->eos());
  if (text.tokenizer->eos()) add_stop(text, *text.tokenizer->eos());
}

ModelText load_from_gguf(const std::filesystem::path& path) {
  const Gguf gguf(path);
  ModelText text;
  text.tokenizer = load_tokenizer(gguf);
  set_special_texts(text);
  add_stop(text, gguf.integer("tokenizer.ggml.eot_token_id"));
  if (const std::string* source = gguf.string("tokenizer.chat_template")) text.chat_template.emplace(*source);
  return text;
}

// "eos_token_id": 2 or [2, 7]
void add_configured_stops(const std::filesystem::path& file, ModelText& text) {
  if (!std::filesystem::exists(file)) return;
  const Json config = read_json_file(file);
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return;
  for (const Json& id : it->is_array() ? *it : Json::array({*it})) {
    if (!id.is_number_integer())
      input_error("{}: eos_token_id: expected an id or ids, got {}", file.string(), it->dump());
    add_stop(text, id.get<std::int64_t>());
  }
}

// A template is a string, or a list of named ones of which "default" is meant.
std::optional<std::string> template_source(const Json& config, const std::filesystem::path& file) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array())
    for (const Json& entry : *it)
      if (entry.is_object() && entry.contains("name") && entry["name"] == "default" && entry.contains("template") &&
          entry["template"].is_string())
        return entry["template"].get<std::string>();
  input_error("{}: chat_template: expected a string or a list with a template named default", file.string());
}

ModelText load_from_directory(const std::filesystem::path& path) {
  ModelText text;
  text.tokenizer = load_tokenizer(path);
  set_special_texts(text);
  add_configured_stops(path / "generation_config.json", text);
  add_configured_stops(path / "config.json", text);
  if (const auto file = path / "chat_template.jinja"; std::filesystem::exists(file)) {
    text.chat_template.emplace(read_text_file(file));
  } else if (const auto config = path / "tokenizer_config.json"; std::filesystem::exists(config)) {
    if (const auto source = template_source(read_json_file(config), config)) text.chat_template.emplace(*source);
  }
  return text;
}

}  // namespace

ModelText load_model_text(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) ? load_from_directory(path) : load_from_gguf(path);
}

}  // namespace espalier
