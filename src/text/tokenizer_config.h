// tokenizer_config.json of a Hugging Face directory: which of the tokens begin and end a text, and the tokens a
// SentencePiece model does not know about.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"

namespace espalier {

struct TokenizerConfig {
  std::string tokenizer_class;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<bool> add_bos_token;
  bool legacy = true;                    // Llama: the dummy prefix comes after every control token
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder
};

// Throws InputError "where: path: ...".
TokenizerConfig parse_tokenizer_config(std::string_view json, std::string_view where);

}  // namespace espalier
