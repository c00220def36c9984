#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "text/space_marker.h"

namespace espalier {
namespace {

using Type = SentencePieceModel::Type;

std::unique_ptr<const sentencepiece::SentencePieceProcessor> make_processor(const SentencePieceModel& model,
                                                                            std::string_view where) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(serialize(model));
  if (!status.ok()) input_error("{}: SentencePiece refuses the model: {}", where, in_quotes(status.message()));
  return processor;
}

// Whether the library gives back every text: then a dummy prefix is simply a space in front of it.
bool keeps_text(const SentencePieceModel& model) {
  return model.character_map.empty() && !model.remove_extra_whitespaces && model.escape_whitespaces;
}

void check_pieces(const SentencePieceModel& model, std::string_view where) {
  if (model.whitespace_suffix) input_error("{}: treat_whitespace_as_suffix is not supported", where);
  using Algorithm = SentencePieceModel::Algorithm;
  if (model.algorithm != Algorithm::bpe && model.algorithm != Algorithm::unigram) {
    input_error("{}: expected a unigram or BPE model, got type {}", where, static_cast<int>(model.algorithm));
  }
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (!is_utf8(model.pieces[id].text)) input_error("{}: piece {} is not valid UTF-8", where, id);
  }
}

// The model's own control pieces and the tokens of the configuration, each id once. A piece of the model stays a
// control token whatever the configuration says.
std::vector<AddedToken> all_added_tokens(const SentencePieceParts& parts, std::string_view where) {
  const auto& pieces = parts.model.pieces;
  std::map<TokenId, AddedToken> by_id;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const bool special = pieces[id].type == Type::control || pieces[id].type == Type::unknown;
    if (!special) continue;
    const auto token = static_cast<TokenId>(id);
    by_id[token] = {.text = pieces[id].text, .id = token, .special = true};
  }
  for (AddedToken token : parts.added_tokens) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id < pieces.size() && pieces[id].text != token.text) {
      input_error("{}: added token {} is {}, but piece {} of the model is {}", where, token.id, in_quotes(token.text),
                  token.id, in_quotes(pieces[id].text));
    }
    token.special |= by_id.contains(token.id);
    token.normalized = false;
    by_id[token.id] = std::move(token);
  }
  std::vector<AddedToken> tokens;
  std::map<std::string_view, TokenId> seen;
  for (const auto& [id, token] : by_id) {
    if (token.text.empty()) input_error("{}: added token {} is empty", where, id);
    const auto [entry, is_new] = seen.emplace(token.text, id);
    if (!is_new) input_error("{}: added tokens {} and {} are both {}", where, entry->second, id, in_quotes(token.text));
    tokens.push_back(token);
  }
  return tokens;
}

// What we find in the text ourselves the library must not find again where it is not allowed.
void hide_from_library(const std::vector<AddedToken>& tokens, SentencePieceModel& model) {
  for (const AddedToken& token : tokens) {
    const auto id = static_cast<std::size_t>(token.id);
    if (!token.special || id >= model.pieces.size()) continue;
    if (model.pieces[id].type != Type::unknown) model.pieces[id].type = Type::control;
  }
}

std::optional<unsigned char> byte_of(const SentencePieceModel::Piece& piece) {
  if (piece.type != Type::byte || piece.text.size() != 6) return std::nullopt;
  return static_cast<unsigned char>(std::stoi(piece.text.substr(3, 2), nullptr, 16));  // the library has checked <0xNN>
}

// The byte pieces that spell a literal space marker. Requires a model with byte fallback that the library has accepted.
std::vector<TokenId> bytes_of_space_marker(const SentencePieceModel& model) {
  std::vector<TokenId> ids;
  for (const char c : kSpaceMarker) {
    const auto found = std::find_if(model.pieces.begin(), model.pieces.end(),
                                    [&](const auto& piece) { return byte_of(piece) == static_cast<unsigned char>(c); });
    ids.push_back(static_cast<TokenId>(found - model.pieces.begin()));
  }
  return ids;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceParts parts, std::string_view where)
    : add_dummy_prefix_(parts.model.add_dummy_prefix),
      prefix_after_added_(parts.prefix_after_added),
      bos_(parts.bos),
      eos_(parts.eos),
      add_bos_(parts.add_bos && parts.bos) {
  SentencePieceModel& model = parts.model;
  check_pieces(model, where);
  const std::vector<AddedToken> added = all_added_tokens(parts, where);
  hide_from_library(added, model);
  if (!keeps_text(model)) prefixing_ = make_processor(model, where);
  model.add_dummy_prefix = false;
  plain_ = make_processor(model, where);

  for (const SentencePieceModel::Piece& piece : model.pieces) add_entry(piece, model.escape_whitespaces);
  add_entries(added, where);
  if (model.byte_fallback && keeps_text(model)) space_marker_ = bytes_of_space_marker(model);
  added_tokens_ = AddedTokens(added);
}

void SentencePieceTokenizer::add_entry(const SentencePieceModel::Piece& piece, bool escaped) {
  if (const auto byte = byte_of(piece)) {
    entries_.push_back({.bytes = std::string(1, static_cast<char>(*byte))});
    return;
  }
  entries_.push_back({.bytes = escaped ? spaces_for_markers(piece.text) : piece.text,
                      .prefixed = add_dummy_prefix_ && escaped && piece.text.starts_with(kSpaceMarker)});
}

void SentencePieceTokenizer::add_entries(const std::vector<AddedToken>& tokens, std::string_view where) {
  for (const AddedToken& token : tokens) {
    const auto id = static_cast<std::size_t>(token.id);
    if (id > entries_.size()) {
      input_error("{}: added token {} has id {}, expected at most {} (no gaps are allowed)", where,
                  in_quotes(token.text), id, entries_.size());
    }
    if (id == entries_.size()) entries_.emplace_back();
    entries_[id] = {.bytes = token.text, .kind = token.special ? Kind::special : Kind::added};
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::vector<TokenId> SentencePieceTokenizer::encode(std::span<const TextPiece> pieces) const {
  const MarkedText text = join_pieces(pieces);
  std::vector<TokenId> ids;
  for (const AddedTokens::Segment& segment : added_tokens_.split(text)) {
    if (segment.id) {
      ids.push_back(*segment.id);
      continue;
    }
    const bool prefix = add_dummy_prefix_ && (prefix_after_added_ || segment.begin == 0);
    encode_segment(std::string_view(text.text).substr(segment.begin, segment.end - segment.begin), prefix, ids);
  }
  return ids;
}

void SentencePieceTokenizer::encode_segment(std::string_view segment, bool prefix, std::vector<TokenId>& ids) const {
  if (prefixing_) return run(prefix ? *prefixing_ : *plain_, segment, ids);
  encode_exactly(segment, prefix, ids);
}

void SentencePieceTokenizer::encode_exactly(std::string_view segment, bool prefix, std::vector<TokenId>& ids) const {
  std::string text = prefix ? " " : "";
  while (!space_marker_.empty()) {
    const std::size_t marker = segment.find(kSpaceMarker);
    if (marker == std::string_view::npos) break;
    text += segment.substr(0, marker);
    run(*plain_, text, ids);
    ids.insert(ids.end(), space_marker_.begin(), space_marker_.end());
    segment.remove_prefix(marker + kSpaceMarker.size());
    text.clear();
  }
  text += segment;
  run(*plain_, text, ids);
}

void SentencePieceTokenizer::run(const Processor& processor, std::string_view text, std::vector<TokenId>& ids) const {
  std::vector<int> encoded;
  const auto status = processor.Encode(text, &encoded);
  if (!status.ok()) device_error("SentencePiece: Encode: {}", in_quotes(status.message()));
  ids.insert(ids.end(), encoded.begin(), encoded.end());
}

const SentencePieceTokenizer::Entry& SentencePieceTokenizer::entry(TokenId id) const {
  check(id >= 0, "token id {} is negative", id);
  static const Entry kNoText{};
  return id < vocabulary_size() ? entries_[static_cast<std::size_t>(id)] : kNoText;
}

std::string SentencePieceTokenizer::bytes(TokenId id, bool first) const {
  const Entry& token = entry(id);
  return first && token.prefixed ? token.bytes.substr(1) : token.bytes;
}

bool SentencePieceTokenizer::starts_text_after(TokenId id) const {
  return prefix_after_added_ && entry(id).kind != Kind::ordinary;
}

std::optional<TokenId> SentencePieceTokenizer::find_special(std::string_view text) const {
  for (TokenId id = 0; id < vocabulary_size(); ++id) {
    if (is_special(id) && entry(id).bytes == text) return id;
  }
  return std::nullopt;
}

}  // namespace espalier
