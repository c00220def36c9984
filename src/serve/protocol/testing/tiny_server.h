// A model's text and a server's settings without a model: for tests only.
#pragma once

#include <filesystem>

#include "serve/protocol/request_plan.h"

namespace espalier {

// Bytes as tokens (byte b is id b + 3), control tokens <|im_start|> and <|im_end|>, a ChatML template, no BOS.
inline ModelText byte_text() {
  return load_model_text(std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/llama2.gguf");
}

// Llama 2's kind of vocabulary, with BOS in front of prompts and without a template.
inline ModelText bos_text() {
  return load_model_text(std::filesystem::path(ESPALIER_TEST_DATA) / "tokenizers/llama2");
}

inline ServerSettings tiny_settings(const ModelText& text) {
  return {.model = "tiny",
          .context = 256,
          .vocabulary = text.tokenizer->vocabulary_size(),
          .drafters = {"eagle3", "ngram"}};
}

}  // namespace espalier
