#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "text/utf8.h"

namespace espalier {
namespace {

AddedTokens raw_tokens(const std::vector<AddedToken>& all) {
  std::vector<AddedToken> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), [](const AddedToken& t) { return !t.normalized; });
  return AddedTokens(std::move(chosen));
}

// A token that is looked for in normalised text is looked for in its normalised form. Two tokens may end up with the
// same form; then the one with the lower id is found.
AddedTokens normalized_tokens(const std::vector<AddedToken>& all, const Normalizer& normalizer) {
  std::map<std::string, AddedToken> chosen;
  for (AddedToken token : all) {
    if (!token.normalized) continue;
    MarkedText text;
    text.append(token.text, MarkedText::kAllowSpecial);
    token.text = normalizer.apply(std::move(text)).text;
    const auto [entry, is_new] = chosen.emplace(token.text, token);
    if (!is_new && token.id < entry->second.id) entry->second = token;
  }
  std::vector<AddedToken> tokens;
  for (auto& [text, token] : chosen) {
    if (!text.empty()) tokens.push_back(std::move(token));
  }
  return AddedTokens(std::move(tokens));
}

BpeVocabulary with_special_flags(BpeVocabulary vocabulary, const std::vector<AddedToken>& added) {
  vocabulary.special.assign(vocabulary.tokens.size(), false);
  for (const AddedToken& token : added) {
    if (token.special) vocabulary.special[static_cast<std::size_t>(token.id)] = true;
  }
  return vocabulary;
}

// A single byte must stay an ordinary token even where a file calls it special (some pad with "!"): otherwise text
// could either not spell it or would contain control tokens.
void demote_single_bytes(std::vector<AddedToken>& added, bool byte_level) {
  for (AddedToken& token : added) {
    if (byte_level && token.text.size() == 1) token.special = false;
  }
}

BpeParts prepared(BpeParts parts, std::string_view where) {
  std::map<std::string_view, TokenId> seen;
  for (const AddedToken& token : parts.added_tokens) {
    if (token.text.empty()) input_error("{}: added token {} is empty", where, token.id);
    const auto [entry, is_new] = seen.emplace(token.text, token.id);
    if (!is_new) {
      input_error("{}: added tokens {} and {} are both {}", where, entry->second, token.id, in_quotes(token.text));
    }
  }
  demote_single_bytes(parts.added_tokens, parts.vocabulary.byte_level);
  parts.vocabulary = with_special_flags(std::move(parts.vocabulary), parts.added_tokens);
  return parts;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeParts unprepared, std::string_view where)
    : model_([&] {
        unprepared = prepared(std::move(unprepared), where);
        return BpeModel(std::move(unprepared.vocabulary), where);
      }()),
      raw_tokens_(raw_tokens(unprepared.added_tokens)),
      normalized_tokens_(normalized_tokens(unprepared.added_tokens, unprepared.normalizer)),
      kinds_(model_.size(), Kind::ordinary),
      normalizer_(std::move(unprepared.normalizer)),
      pretokenizer_(std::move(unprepared.pretokenizer)),
      metaspace_(unprepared.metaspace),
      byte_level_(unprepared.vocabulary.byte_level),
      marks_spaces_(unprepared.marks_spaces),
      drops_prefix_(unprepared.drops_prefix),
      prefix_after_added_(unprepared.prefix_after_added),
      bos_(unprepared.bos),
      eos_(unprepared.eos),
      add_bos_(unprepared.add_bos) {
  for (const AddedToken& token : unprepared.added_tokens) {
    kinds_[static_cast<std::size_t>(token.id)] = token.special ? Kind::special : Kind::added;
  }
  bytes_.reserve(model_.size());
  for (TokenId id = 0; id < vocabulary_size(); ++id) {
    bytes_.push_back(kind(id) == Kind::ordinary ? ordinary_bytes(id) : model_.token(id));
  }
}

std::string BpeTokenizer::ordinary_bytes(TokenId id) const {
  const std::string& token = model_.token(id);
  if (byte_level_) return byte_level_decode(token).value_or(token);
  for (unsigned byte = 0; token.starts_with("<0x") && byte < 256; ++byte) {
    if (model_.byte_token(static_cast<unsigned char>(byte)) == id) return std::string(1, static_cast<char>(byte));
  }
  return marks_spaces_ ? spaces_for_markers(token) : token;
}

std::vector<TokenId> BpeTokenizer::encode(std::span<const TextPiece> pieces) const {
  MarkedText text = join_pieces(pieces);
  if (marks_spaces_) mark_literals(text);
  std::vector<TokenId> ids;
  for (const AddedTokens::Segment& segment : raw_tokens_.split(text)) {
    if (segment.id) {
      ids.push_back(*segment.id);
    } else {
      encode_segment(text.slice(segment.begin, segment.end), segment.begin == 0, ids);
    }
  }
  return ids;
}

void BpeTokenizer::mark_literals(MarkedText& text) const {
  const bool spellable = std::all_of(kSpaceMarker.begin(), kSpaceMarker.end(), [&](char c) {
    return model_.byte_token(static_cast<unsigned char>(c)).has_value();
  });
  if (!spellable) return;
  for (std::size_t at = text.text.find(kSpaceMarker); at != std::string::npos;
       at = text.text.find(kSpaceMarker, at + kSpaceMarker.size())) {
    for (std::size_t i = at; i < at + kSpaceMarker.size(); ++i) {
      text.marks[i] = static_cast<char>(text.marks[i] | MarkedText::kLiteral);
    }
  }
}

void BpeTokenizer::encode_segment(const MarkedText& segment, bool at_beginning, std::vector<TokenId>& ids) const {
  const MarkedText text = normalizer_.apply(segment);
  for (const AddedTokens::Segment& part : normalized_tokens_.split(text)) {
    if (part.id) {
      ids.push_back(*part.id);
    } else {
      encode_words(text.slice(part.begin, part.end), at_beginning && part.begin == 0, ids);
    }
  }
}

void BpeTokenizer::encode_words(MarkedText text, bool at_beginning, std::vector<TokenId>& ids) const {
  if (metaspace_) {
    const std::string marker(kSpaceMarker);
    text = replace_all(text, " ", marker);
    const bool wants_prefix = metaspace_->prefix == Metaspace::Prefix::always ||
                              (metaspace_->prefix == Metaspace::Prefix::first && at_beginning);
    const bool has_prefix = text.text.starts_with(marker) && (text.marks[0] & MarkedText::kLiteral) == 0;
    if (wants_prefix && !has_prefix) text = Normalizer({Normalizer::Prepend{marker}}).apply(std::move(text));
  }
  for (const Pretokenizer::Word& word : pretokenizer_.split(text.text)) model_.encode(text, word.begin, word.end, ids);
}

BpeTokenizer::Kind BpeTokenizer::kind(TokenId id) const {
  check(id >= 0, "token id {} is negative", id);
  return id < vocabulary_size() ? kinds_[static_cast<std::size_t>(id)] : Kind::ordinary;
}

std::string BpeTokenizer::bytes(TokenId id, bool first) const {
  const Kind token_kind = kind(id);
  if (id >= vocabulary_size()) return {};
  const std::string& bytes = bytes_[static_cast<std::size_t>(id)];
  const bool prefixed = token_kind == Kind::ordinary && marks_spaces_ && model_.token(id).starts_with(kSpaceMarker);
  return first && drops_prefix_ && prefixed ? bytes.substr(1) : bytes;
}

bool BpeTokenizer::starts_text_after(TokenId id) const {
  return prefix_after_added_ && kind(id) != Kind::ordinary;
}

bool BpeTokenizer::is_special(TokenId id) const {
  return kind(id) == Kind::special;
}

std::optional<TokenId> BpeTokenizer::find_special(std::string_view text) const {
  const auto id = model_.find(text);
  return id && is_special(*id) ? id : std::nullopt;
}

}  // namespace espalier
