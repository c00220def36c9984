// Byte-pair encoding of one word: its symbols (bytes, or characters) are merged pair by pair, the merge learned first
// before all others and further left before further right, until no merge applies. A word of n symbols takes
// O(n log n). Immutable after construction, safe to share between threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/marked_text.h"

namespace espalier {

// (left id, right id) -> rank and id of the merged token. Open addressing over one array: a vocabulary has some
// hundred thousand merges, and encoding does little else but look them up.
class BpeMerges {
 public:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;
  };

  explicit BpeMerges(std::size_t count = 0);
  // Later merges have higher ranks; of two merges of the same pair the later one counts.
  void add(std::int32_t left, std::int32_t right, Merge merge);
  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Entry {
    std::uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are not negative, so no pair looks like this
  std::size_t slot(std::uint64_t pair) const;

  std::vector<Entry> entries_;  // a power of two, at most half full
};

struct BpeVocabulary {
  std::vector<std::string> tokens;  // by id, as the file spells them
  std::vector<bool> special;        // by id: control tokens, which no merge may produce
  std::vector<std::pair<std::string, std::string>> merges;
  bool byte_level = true;               // symbols are bytes in the byte-level alphabet; otherwise characters
  bool ignore_merges = false;           // a word that is a token needs no merges
  bool byte_fallback = false;           // a character without a token is spelled in tokens <0x00> to <0xFF>
  bool fuse_unknown = false;            // a run of unknown symbols is one unknown token
  std::optional<std::int32_t> unknown;  // the token of an unknown symbol; without it the symbol is left out
};

class BpeModel {
 public:
  // Throws InputError naming `where` when a merge uses or makes something that is not a token, or a text is the text
  // of two tokens.
  BpeModel(BpeVocabulary vocabulary, std::string_view where);
  BpeModel(BpeModel&&) = default;  // not copyable: ids_ looks into tokens_
  BpeModel& operator=(BpeModel&&) = default;

  std::size_t size() const { return tokens_.size(); }
  const std::string& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::optional<std::int32_t> find(std::string_view token) const;
  // The token <0xNN>, when bytes have tokens of their own.
  std::optional<std::int32_t> byte_token(unsigned char byte) const { return byte_tokens_[byte]; }

  // Appends the ids of text[begin, end). A symbol the vocabulary cannot spell becomes the unknown token or is left out.
  void encode(const MarkedText& text, std::size_t begin, std::size_t end, std::vector<std::int32_t>& ids) const;

 private:
  void add_merges(const std::vector<std::pair<std::string, std::string>>& merges, std::string_view where);
  void add_byte_symbols();
  void add_byte_tokens();
  void byte_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void character_symbols(const MarkedText& text, std::size_t begin, std::size_t end,
                         std::vector<std::int32_t>& symbols) const;
  bool spell_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const;
  void unknown_symbol(std::vector<std::int32_t>& symbols) const;

  std::vector<std::string> tokens_;
  std::vector<bool> special_;
  std::unordered_map<std::string_view, std::int32_t> ids_;     // keys live in tokens_
  std::array<std::optional<std::int32_t>, 256> byte_symbols_;  // byte_level
  std::array<std::optional<std::int32_t>, 256> byte_tokens_;   // byte_fallback
  std::unordered_map<std::string, std::int32_t> whole_words_;  // ignore_merges: raw text -> id
  BpeMerges merges_;
  bool byte_level_;
  bool ignore_merges_;
  bool fuse_unknown_;
  std::optional<std::int32_t> unknown_;
};

// The byte-level alphabet of GPT-2 gives each byte a printable character: itself where it is printable Latin-1, else
// U+0100 and up in the order of the bytes.
std::string byte_level_character(unsigned char byte);
// The bytes a token in that alphabet stands for; nullopt when it contains other characters.
std::optional<std::string> byte_level_decode(std::string_view token);

}  // namespace espalier
