#include "text/tokenizer_config.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

// A token is its text, or an object around it.
std::optional<std::string> token_text(const JsonField& config, std::string_view key) {
  const auto field = config.find(key);
  if (!field) return std::nullopt;
  return field->is_string() ? field->string() : field->at("content").string();
}

std::int32_t parse_id(const std::string& key, const JsonField& where) {
  std::int32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0) {
    input_error("{}: expected a token id, got {}", where.where(), in_quotes(key));
  }
  return id;
}

}  // namespace

TokenizerConfig parse_tokenizer_config(std::string_view json, std::string_view where) {
  const nlohmann::json document = parse_json(json, where);
  const JsonField config(document, where);
  TokenizerConfig result;
  result.tokenizer_class = config.string_or("tokenizer_class", "");
  result.bos_token = token_text(config, "bos_token");
  result.eos_token = token_text(config, "eos_token");
  if (const auto field = config.find("add_bos_token")) result.add_bos_token = field->boolean();
  result.legacy = config.boolean_or("legacy", true);
  if (const auto added = config.find("added_tokens_decoder")) {
    for (const auto& [key, value] : added->object().items()) {
      const std::int32_t id = parse_id(key, *added);
      const JsonField token = added->at(key);
      result.added_tokens.push_back({.text = token.at("content").string(),
                                     .id = id,
                                     .special = token.boolean_or("special", false),
                                     .strip_left = token.boolean_or("lstrip", false),
                                     .strip_right = token.boolean_or("rstrip", false),
                                     .single_word = token.boolean_or("single_word", false),
                                     .normalized = token.boolean_or("normalized", false)});
    }
  }
  return result;
}

}  // namespace espalier
