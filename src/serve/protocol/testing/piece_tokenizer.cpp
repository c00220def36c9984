#include "serve/protocol/testing/piece_tokenizer.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {

PieceTokenizer::PieceTokenizer(std::vector<std::string> pieces, bool dummy_prefix)
    : pieces_(std::move(pieces)), dummy_prefix_(dummy_prefix) {
  for (std::string& piece : pieces_) {
    specials_.push_back(piece.starts_with('\x01'));
    if (specials_.back()) piece.erase(0, 1);
  }
}

std::vector<TokenId> PieceTokenizer::encode(std::span<const TextPiece> pieces) const {
  std::vector<TokenId> ids;
  for (const TextPiece& piece : pieces)
    for (std::string_view rest = piece.text; !rest.empty();) {
      std::size_t best = pieces_.size();
      for (std::size_t i = 0; i < pieces_.size(); ++i)
        if (!pieces_[i].empty() && (piece.allow_special || !specials_[i]) && rest.starts_with(pieces_[i]) &&
            (best == pieces_.size() || pieces_[i].size() > pieces_[best].size()))
          best = i;
      if (best == pieces_.size()) input_error("the vocabulary cannot spell {} bytes", rest.size());
      ids.push_back(static_cast<TokenId>(best));
      rest.remove_prefix(pieces_[best].size());
    }
  return ids;
}

std::string PieceTokenizer::bytes(TokenId id, bool first) const {
  const std::string& piece = pieces_.at(static_cast<std::size_t>(id));
  return dummy_prefix_ && first && piece.starts_with(' ') ? piece.substr(1) : piece;
}

std::optional<TokenId> PieceTokenizer::find_special(std::string_view text) const {
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (specials_[i] && pieces_[i] == text) return static_cast<TokenId>(i);
  return std::nullopt;
}

TokenId PieceTokenizer::id(std::string_view piece) const {
  const auto found = std::ranges::find(pieces_, piece);
  check(found != pieces_.end(), "no such piece");
  return static_cast<TokenId>(found - pieces_.begin());
}

ModelText text_of_pieces(std::vector<std::string> pieces, TokenId stop) {
  ModelText text;
  text.tokenizer = std::make_unique<PieceTokenizer>(std::move(pieces));
  text.stop_tokens = {stop};
  return text;
}

}  // namespace espalier
