// Everything about text that a model file carries: the tokenizer, the chat template, and the ids that end an answer.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace espalier {

struct ModelText {
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::string bos_text, eos_text;    // as chat templates refer to them; empty if the model has none
  std::vector<TokenId> stop_tokens;  // any of them ends an answer
};

// From a GGUF file or a Hugging Face directory (tokenizer files, generation_config.json). Throws InputError.
ModelText load_model_text(const std::filesystem::path& path);

}  // namespace espalier
