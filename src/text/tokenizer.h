// Text to token ids and back. Immutable after construction, safe to share between threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "text/text_piece.h"

namespace espalier {

using TokenId = std::int32_t;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of the pieces read as one text. No BOS or EOS is added. Invalid UTF-8 throws InputError with the offset.
  virtual std::vector<TokenId> encode(std::span<const TextPiece> pieces) const = 0;
  // One piece; control tokens are recognised only with allow_special.
  std::vector<TokenId> encode(std::string_view text, bool allow_special = false) const;

  // decode(encode(s)) == s for any valid UTF-8 s that the vocabulary can spell and its own normaliser leaves alone
  // (Qwen composes characters, some SentencePiece models collapse spaces). Bytes that are no character come out as
  // U+FFFD, once per maximal invalid part. skip_special leaves out the control tokens.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The bytes this id contributes to the text, possibly part of a character. `first` is true for the first id of a
  // text (SentencePiece drops its dummy prefix there). An id beyond the vocabulary has no text: models pad their
  // embedding tables, and may in theory draw such an id.
  virtual std::string bytes(TokenId id, bool first) const = 0;
  // Whether the next id is the first of a text again: vocabularies that put the dummy prefix after every control token
  // drop it there too.
  virtual bool starts_text_after(TokenId id) const = 0;

  virtual TokenId vocabulary_size() const = 0;
  virtual bool is_special(TokenId id) const = 0;                                 // a control token
  virtual std::optional<TokenId> find_special(std::string_view text) const = 0;  // "<|im_end|>" -> 2
  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool add_bos() const = 0;  // whether a plain prompt starts with BOS
};

// From the metadata of a GGUF file (tokenizer.ggml.*: gpt2 byte-level BPE, llama SentencePiece).
std::unique_ptr<const Tokenizer> load_tokenizer(const Gguf& gguf);
// From a Hugging Face directory: tokenizer.json, else tokenizer.model (SentencePiece); tokenizer_config.json for the
// special tokens.
std::unique_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& directory);

}  // namespace espalier
