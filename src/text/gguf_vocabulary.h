// The part of a GGUF file's metadata that all vocabularies share, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"

namespace espalier {

// tokenizer.ggml.token_type
enum class GgufTokenType : std::int64_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct GgufVocabulary {
  std::span<const std::string> tokens;    // live in the file
  std::vector<GgufTokenType> types = {};  // one for each token
  std::optional<std::int32_t> bos = std::nullopt;
  std::optional<std::int32_t> eos = std::nullopt;
  std::optional<bool> add_bos = std::nullopt;
};

// Throws InputError naming the file and the key.
GgufVocabulary read_gguf_vocabulary(const Gguf& gguf);

// Throws InputError "file: key: ..." when absent.
const std::string& require_string(const Gguf& gguf, std::string_view key);

}  // namespace espalier
