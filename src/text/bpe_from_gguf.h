// Byte-level BPE from the metadata of a GGUF file: tokenizer.ggml.model = gpt2.
#pragma once

#include <memory>

#include "format/gguf.h"
#include "text/tokenizer.h"

namespace espalier {

std::unique_ptr<const Tokenizer> load_bpe(const Gguf& gguf);

}  // namespace espalier
