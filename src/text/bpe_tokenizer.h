// A tokenizer made of the parts a tokenizer.json describes: added tokens, a normaliser, a pre-tokenizer and byte-pair
// encoding. The model is either byte-level (GPT-2, Llama 3, Qwen, SmolLM2) or SentencePiece's algorithm written down as
// merges, with ▁ for spaces and tokens <0xNN> for bytes (Llama 2, Mistral).
//
// One deliberate difference to Hugging Face: where ▁ stands for a space, a ▁ in the text itself is spelled in bytes, so
// that it comes back as ▁.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/space_marker.h"
#include "text/tokenizer.h"

namespace espalier {

// What Hugging Face calls Metaspace: spaces become ▁, and a text that does not start with one gets one.
struct Metaspace {
  enum class Prefix { never, first, always };
  Prefix prefix = Prefix::always;  // first: only at the very beginning, not after an added token
};

struct BpeParts {
  BpeVocabulary vocabulary;
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  Pretokenizer pretokenizer;
  std::optional<Metaspace> metaspace;
  bool marks_spaces = false;        // ▁ in a token is a space
  bool drops_prefix = false;        // decoding drops the first space of a text
  bool prefix_after_added = false;  // a text starts anew after every added token
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  bool add_bos = false;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // Throws InputError naming `where`. Ids of added tokens, bos and eos must be ids of the vocabulary.
  BpeTokenizer(BpeParts parts, std::string_view where);

  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces) const override;
  std::string bytes(TokenId id, bool first) const override;
  bool starts_text_after(TokenId id) const override;
  TokenId vocabulary_size() const override { return static_cast<TokenId>(model_.size()); }
  bool is_special(TokenId id) const override;
  std::optional<TokenId> find_special(std::string_view text) const override;
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  bool add_bos() const override { return add_bos_; }

 private:
  enum class Kind : std::uint8_t { ordinary, added, special };

  void mark_literals(MarkedText& text) const;
  void encode_segment(const MarkedText& segment, bool at_beginning, std::vector<TokenId>& ids) const;
  void encode_words(MarkedText text, bool at_beginning, std::vector<TokenId>& ids) const;
  std::string ordinary_bytes(TokenId id) const;
  Kind kind(TokenId id) const;

  BpeModel model_;
  AddedTokens raw_tokens_;          // found in the text as it is
  AddedTokens normalized_tokens_;   // found after normalisation
  std::vector<Kind> kinds_;         // by id
  std::vector<std::string> bytes_;  // by id
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  std::optional<Metaspace> metaspace_;
  bool byte_level_;
  bool marks_spaces_;
  bool drops_prefix_;
  bool prefix_after_added_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  bool add_bos_;
};

}  // namespace espalier
