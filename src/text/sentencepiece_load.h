// SentencePiece tokenizers from a Hugging Face directory (tokenizer.model) and from GGUF (tokenizer.ggml.model =
// llama), whose tokens, scores and types are the model in other clothes.
#pragma once

#include <memory>
#include <string_view>

#include "format/gguf.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace espalier {

std::unique_ptr<const Tokenizer> load_sentencepiece(const Gguf& gguf);
std::unique_ptr<const Tokenizer> load_sentencepiece(std::string_view model_bytes, std::string_view where,
                                                    const TokenizerConfig& config);

}  // namespace espalier
