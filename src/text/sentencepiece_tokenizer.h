// A tokenizer around the SentencePiece library (Llama 2, Mistral, openPangu). Control tokens are found first, where the
// text allows them; each segment between them is encoded on its own with the model's own normaliser.
//
// One deliberate difference to the library: where ▁ stands for a space and bytes have pieces of their own, a ▁ in the
// text itself is spelled in bytes, so that it comes back as ▁.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace espalier {

struct SentencePieceParts {
  SentencePieceModel model;
  std::vector<AddedToken> added_tokens;  // beyond the model's own control pieces; may extend the vocabulary
  bool prefix_after_added = true;        // the dummy prefix is added to every segment, not only to the first
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  bool add_bos = true;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Throws InputError naming `where`.
  SentencePieceTokenizer(SentencePieceParts parts, std::string_view where);
  ~SentencePieceTokenizer() override;

  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces) const override;
  std::string bytes(TokenId id, bool first) const override;
  bool starts_text_after(TokenId id) const override;
  TokenId vocabulary_size() const override { return static_cast<TokenId>(entries_.size()); }
  bool is_special(TokenId id) const override { return entry(id).kind == Kind::special; }
  std::optional<TokenId> find_special(std::string_view text) const override;
  std::optional<TokenId> bos() const override { return bos_; }
  std::optional<TokenId> eos() const override { return eos_; }
  bool add_bos() const override { return add_bos_; }

 private:
  using Processor = sentencepiece::SentencePieceProcessor;
  enum class Kind : std::uint8_t { ordinary, added, special };
  struct Entry {
    std::string bytes = {};
    Kind kind = Kind::ordinary;
    bool prefixed = false;  // the first byte is a space that the dummy prefix may have put there
  };

  void add_entry(const SentencePieceModel::Piece& piece, bool escaped);
  void add_entries(const std::vector<AddedToken>& tokens, std::string_view where);
  const Entry& entry(TokenId id) const;
  void encode_segment(std::string_view segment, bool prefix, std::vector<TokenId>& ids) const;
  void encode_exactly(std::string_view segment, bool prefix, std::vector<TokenId>& ids) const;
  void run(const Processor& processor, std::string_view text, std::vector<TokenId>& ids) const;

  std::unique_ptr<const Processor> plain_;      // adds no dummy prefix
  std::unique_ptr<const Processor> prefixing_;  // adds it; only where the normaliser would eat a space we put there
  std::vector<Entry> entries_;                  // by id
  std::vector<TokenId> space_marker_;           // the byte pieces of a literal ▁; empty: not spelled in bytes
  AddedTokens added_tokens_;
  bool add_dummy_prefix_;
  bool prefix_after_added_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  bool add_bos_;
};

}  // namespace espalier
