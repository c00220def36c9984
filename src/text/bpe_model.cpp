#include "text/bpe_model.h"

#include <bit>
#include <queue>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "text/utf8.h"

namespace espalier {
namespace {

bool is_printable_latin1(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x180> byte{};  // by character; -1 where there is none

  ByteAlphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = is_printable_latin1(b) ? char32_t{b} : next++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet kAlphabet;
  return kAlphabet;
}

// The symbols of a word as a linked list that shrinks while pairs are merged.
class SymbolList {
 public:
  SymbolList(const std::vector<std::int32_t>& ids, const BpeMerges& merges) : merges_(merges) {
    symbols_.reserve(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto position = static_cast<std::int32_t>(i);
      symbols_.push_back({ids[i], position - 1, i + 1 < ids.size() ? position + 1 : kNone});
    }
    std::vector<Candidate> candidates;
    candidates.reserve(ids.size());
    queue_ = Queue(std::greater<>(), std::move(candidates));
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) propose(static_cast<std::int32_t>(i));
  }

  void merge_all() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (!is_current(best)) continue;
      merge(best);
    }
  }

  void append_to(std::vector<std::int32_t>& ids) const {
    for (std::int32_t at = symbols_.empty() ? kNone : 0; at != kNone; at = symbols_[index(at)].next) {
      ids.push_back(symbols_[index(at)].id);
    }
  }

 private:
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kMerged = -1;  // the id of a symbol that became part of its left neighbour

  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;
    std::int32_t id;
    auto operator<=>(const Candidate&) const = default;
  };
  using Queue = std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>>;

  static std::size_t index(std::int32_t position) { return static_cast<std::size_t>(position); }

  const BpeMerges::Merge* merge_at(std::int32_t position) const {
    const Symbol& left = symbols_[index(position)];
    if (left.id == kMerged || left.next == kNone) return nullptr;
    return merges_.find(left.id, symbols_[index(left.next)].id);
  }

  void propose(std::int32_t position) {
    const BpeMerges::Merge* merge = position == kNone ? nullptr : merge_at(position);
    if (merge != nullptr) queue_.push({merge->rank, position, merge->id});
  }

  // A candidate outlives the pair it was made for; it counts as long as the pair now there makes the same token.
  bool is_current(const Candidate& candidate) const {
    const BpeMerges::Merge* merge = merge_at(candidate.position);
    return merge != nullptr && merge->id == candidate.id;
  }

  void merge(const Candidate& candidate) {
    Symbol& left = symbols_[index(candidate.position)];
    Symbol& right = symbols_[index(left.next)];
    left.id = candidate.id;
    left.next = right.next;
    right.id = kMerged;
    if (left.next != kNone) symbols_[index(left.next)].previous = candidate.position;
    propose(left.previous);
    propose(candidate.position);
  }

  const BpeMerges& merges_;
  std::vector<Symbol> symbols_;
  Queue queue_;
};

}  // namespace

BpeMerges::BpeMerges(std::size_t count) : entries_(std::bit_ceil(2 * count + 2)) {}

std::size_t BpeMerges::slot(std::uint64_t pair) const {
  // Fibonacci hashing: the high bits of the product depend on all bits of the pair.
  const std::uint64_t hash = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
  std::size_t at = hash >> 20 & (entries_.size() - 1);
  while (entries_[at].pair != kEmpty && entries_[at].pair != pair) at = (at + 1) & (entries_.size() - 1);
  return at;
}

void BpeMerges::add(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  entries_[slot(pair)] = {pair, merge};
}

const BpeMerges::Merge* BpeMerges::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  const Entry& entry = entries_[slot(pair)];
  return entry.pair == kEmpty ? nullptr : &entry.merge;
}

BpeModel::BpeModel(BpeVocabulary vocabulary, std::string_view where)
    : tokens_(std::move(vocabulary.tokens)),
      special_(std::move(vocabulary.special)),
      merges_(vocabulary.merges.size()),
      byte_level_(vocabulary.byte_level),
      ignore_merges_(vocabulary.ignore_merges),
      fuse_unknown_(vocabulary.fuse_unknown),
      unknown_(vocabulary.unknown) {
  check(special_.size() == tokens_.size(), "BpeModel: {} tokens, {} special flags", tokens_.size(), special_.size());
  ids_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const auto [entry, is_new] = ids_.emplace(tokens_[id], static_cast<std::int32_t>(id));
    if (!is_new) input_error("{}: tokens {} and {} are both {}", where, entry->second, id, in_quotes(tokens_[id]));
  }
  add_merges(vocabulary.merges, where);
  if (byte_level_) add_byte_symbols();
  if (vocabulary.byte_fallback) add_byte_tokens();
}

void BpeModel::add_merges(const std::vector<std::pair<std::string, std::string>>& merges, std::string_view where) {
  const auto require = [&](std::size_t rank, std::string_view token) {
    const auto id = find(token);
    if (!id) input_error("{}: merge {}: {} is not a token", where, rank, in_quotes(token));
    return *id;
  };
  std::string merged;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    merged.assign(left).append(right);
    const std::int32_t id = require(rank, merged);
    const std::int32_t left_id = require(rank, left);
    const std::int32_t right_id = require(rank, right);
    if (special_[static_cast<std::size_t>(id)]) continue;
    merges_.add(left_id, right_id, {static_cast<std::int32_t>(rank), id});
  }
}

void BpeModel::add_byte_symbols() {
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_symbols_[byte] = find(byte_level_character(static_cast<unsigned char>(byte)));
  }
  if (!ignore_merges_) return;
  whole_words_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (special_[id]) continue;
    if (auto word = byte_level_decode(tokens_[id])) {
      whole_words_.emplace(std::move(*word), static_cast<std::int32_t>(id));
    }
  }
}

void BpeModel::add_byte_tokens() {
  for (unsigned byte = 0; byte < 256; ++byte) byte_tokens_[byte] = find(fmt::format("<0x{:02X}>", byte));
}

std::optional<std::int32_t> BpeModel::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

void BpeModel::encode(const MarkedText& text, std::size_t begin, std::size_t end,
                      std::vector<std::int32_t>& ids) const {
  const std::string_view word = std::string_view(text.text).substr(begin, end - begin);
  if (ignore_merges_) {
    if (byte_level_) {
      const auto found = whole_words_.find(std::string(word));
      if (found != whole_words_.end()) return ids.push_back(found->second);
    } else if (const auto id = find(word); id && !special_[static_cast<std::size_t>(*id)]) {
      return ids.push_back(*id);
    }
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  if (byte_level_) {
    byte_symbols(word, symbols);
  } else {
    character_symbols(text, begin, end, symbols);
  }
  SymbolList list(symbols, merges_);
  list.merge_all();
  list.append_to(ids);
}

void BpeModel::byte_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  bool after_unknown = false;
  for (const char c : word) {
    const auto id = byte_symbols_[static_cast<unsigned char>(c)];
    if (id) {
      symbols.push_back(*id);
    } else if (!after_unknown || !fuse_unknown_) {
      unknown_symbol(symbols);
    }
    after_unknown = !id;
  }
}

void BpeModel::character_symbols(const MarkedText& text, std::size_t begin, std::size_t end,
                                 std::vector<std::int32_t>& symbols) const {
  bool after_unknown = false;
  for (std::size_t at = begin; at < end;) {
    const std::string_view character = std::string_view(text.text).substr(at, utf8_length(text.text[at]));
    const bool literal = (text.marks[at] & MarkedText::kLiteral) != 0;
    const auto id = literal ? std::nullopt : find(character);
    bool unknown = false;
    if (id && !special_[static_cast<std::size_t>(*id)]) {
      symbols.push_back(*id);
    } else if (!spell_bytes(character, symbols)) {
      unknown = true;
      if (!after_unknown || !fuse_unknown_) unknown_symbol(symbols);
    }
    after_unknown = unknown;
    at += character.size();
  }
}

bool BpeModel::spell_bytes(std::string_view character, std::vector<std::int32_t>& symbols) const {
  for (const char c : character) {
    if (!byte_tokens_[static_cast<unsigned char>(c)]) return false;
  }
  for (const char c : character) symbols.push_back(*byte_tokens_[static_cast<unsigned char>(c)]);
  return true;
}

void BpeModel::unknown_symbol(std::vector<std::int32_t>& symbols) const {
  if (unknown_) symbols.push_back(*unknown_);
}

std::string byte_level_character(unsigned char byte) {
  std::string character;
  append_utf8(character, byte_alphabet().character[byte]);
  return character;
}

std::optional<std::string> byte_level_decode(std::string_view token) {
  const ByteAlphabet& alphabet = byte_alphabet();
  std::string bytes;
  while (!token.empty()) {
    const Utf8Step step = utf8_step(token);
    if (step.kind != Utf8Step::Kind::character || step.code_point >= alphabet.byte.size()) return std::nullopt;
    const std::int16_t byte = alphabet.byte[step.code_point];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    token.remove_prefix(step.size);
  }
  return bytes;
}

}  // namespace espalier
