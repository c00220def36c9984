#include "text/gguf_vocabulary.h"

#include <limits>

#include "base/error.h"

namespace espalier {
namespace {

template <typename Value>
const Value& require(const Value* value, const Gguf& gguf, std::string_view key) {
  if (value == nullptr) input_error("{}: {} is missing", gguf.description(), key);
  return *value;
}

std::vector<GgufTokenType> read_types(const Gguf& gguf, std::size_t count) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  const std::vector<std::int64_t>& types = require(gguf.integers(kKey), gguf, kKey);
  if (types.size() != count) {
    input_error("{}: {}: expected {} entries, one for each token, got {}", gguf.description(), kKey, count,
                types.size());
  }
  std::vector<GgufTokenType> result;
  result.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    if (types[id] < 1 || types[id] > 6) {
      input_error("{}: {}[{}]: expected 1 to 6, got {}", gguf.description(), kKey, id, types[id]);
    }
    result.push_back(static_cast<GgufTokenType>(types[id]));
  }
  return result;
}

std::optional<std::int32_t> read_id(const Gguf& gguf, std::string_view key, std::size_t count) {
  const auto id = gguf.integer(key);
  if (!id) return std::nullopt;
  if (*id < 0 || static_cast<std::uint64_t>(*id) >= count) {
    input_error("{}: {}: expected 0 to {}, got {}", gguf.description(), key, count - 1, *id);
  }
  return static_cast<std::int32_t>(*id);
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const Gguf& gguf) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const std::vector<std::string>& tokens = require(gguf.strings(kTokens), gguf, kTokens);
  if (tokens.empty() || tokens.size() > std::numeric_limits<std::int32_t>::max()) {
    input_error("{}: {}: {} tokens", gguf.description(), kTokens, tokens.size());
  }
  GgufVocabulary vocabulary{.tokens = tokens, .types = read_types(gguf, tokens.size())};
  vocabulary.bos = read_id(gguf, "tokenizer.ggml.bos_token_id", tokens.size());
  vocabulary.eos = read_id(gguf, "tokenizer.ggml.eos_token_id", tokens.size());
  vocabulary.add_bos = gguf.boolean("tokenizer.ggml.add_bos_token");
  return vocabulary;
}

const std::string& require_string(const Gguf& gguf, std::string_view key) {
  return require(gguf.string(key), gguf, key);
}

}  // namespace espalier
