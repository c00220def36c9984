// Reads tokenizer.json, the format of Hugging Face tokenizers, as far as byte-pair encoding goes. What is not supported
// is refused by name, so that no text is ever cut differently from what the model was trained on.
#pragma once

#include <memory>
#include <string_view>

#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace espalier {

// `where` is the path, for messages.
std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view where,
                                                      const TokenizerConfig& config);

}  // namespace espalier
