// The contents of a SentencePiece model file (tokenizer.model): a protocol buffer, read and written by hand because the
// library keeps its message classes to itself and we need to change things: pieces that are control tokens must not be
// found in text, and the dummy prefix is ours to place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct SentencePieceModel {
  enum class Type : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum class Algorithm : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };

  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };

  std::vector<Piece> pieces = {};  // by id
  Algorithm algorithm = Algorithm::unigram;
  bool byte_fallback = false;
  bool whitespace_suffix = false;  // ▁ ends words instead of starting them
  std::string character_map = {};  // the normaliser's rules, compiled; empty: every character stays itself
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;  // spaces are ▁ inside the pieces
};

// Throws InputError naming `where` and the field when the bytes are no such model.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view where);

std::string serialize(const SentencePieceModel& model);

}  // namespace espalier
