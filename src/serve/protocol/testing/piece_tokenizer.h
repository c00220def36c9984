// A vocabulary that a test writes down: pieces of any bytes, half characters too, and control tokens. For tests only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/model_text.h"

namespace espalier {

// The longest piece that fits is taken. A piece whose first byte is '\x01' is a control token: the rest is its text.
// With a dummy prefix a leading space is dropped from the first token of a text (SentencePiece).
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces, bool dummy_prefix = false);

  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces) const override;
  std::string bytes(TokenId id, bool first) const override;
  bool starts_text_after(TokenId) const override { return false; }
  TokenId vocabulary_size() const override { return static_cast<TokenId>(pieces_.size()); }
  bool is_special(TokenId id) const override { return specials_[static_cast<std::size_t>(id)]; }
  std::optional<TokenId> find_special(std::string_view text) const override;
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::optional<TokenId> eos() const override { return std::nullopt; }
  bool add_bos() const override { return false; }

  TokenId id(std::string_view piece) const;  // of an ordinary piece that there is

 private:
  std::vector<std::string> pieces_;
  std::vector<bool> specials_;
  bool dummy_prefix_;
};

// Without a template; `stop` is its only stop token.
ModelText text_of_pieces(std::vector<std::string> pieces, TokenId stop);

}  // namespace espalier
