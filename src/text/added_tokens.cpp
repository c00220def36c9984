#include "text/added_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace espalier {
namespace {

using Tokens = std::vector<AddedToken>;

// Byte `depth` of a token's text, -1 behind its end: shorter tokens sort before their continuations.
int byte_at(const AddedToken& token, std::size_t depth) {
  return depth < token.text.size() ? static_cast<unsigned char>(token.text[depth]) : -1;
}

bool allows_special(const MarkedText& text, std::size_t begin, std::size_t end) {
  return std::all_of(text.marks.begin() + static_cast<std::ptrdiff_t>(begin),
                     text.marks.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char mark) { return (mark & MarkedText::kAllowSpecial) != 0; });
}

std::size_t previous_character(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while ((static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

char32_t character_at(std::string_view text, std::size_t begin) {
  return utf8_step(text.substr(begin)).code_point;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word_character(character_at(text, previous_character(text, begin)))) return false;
  return end == text.size() || !is_word_character(character_at(text, end));
}

bool may_match(const AddedToken& token, const MarkedText& text, std::size_t begin) {
  const std::size_t end = begin + token.text.size();
  if (token.special && !allows_special(text, begin, end)) return false;
  return !token.single_word || stands_alone(text.text, begin, end);
}

std::size_t skip_white_space_left(std::string_view text, std::size_t begin, std::size_t limit) {
  while (begin > limit) {
    const std::size_t previous = previous_character(text, begin);
    if (!is_white_space(character_at(text, previous))) break;
    begin = previous;
  }
  return begin;
}

std::size_t skip_white_space_right(std::string_view text, std::size_t end) {
  while (end < text.size() && is_white_space(character_at(text, end))) end += utf8_length(text[end]);
  return end;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), starts_token_(256) {
  std::sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    check(!tokens_[i].text.empty(), "AddedTokens: token {} is empty", tokens_[i].id);
    check(i == 0 || tokens_[i].text != tokens_[i - 1].text, "AddedTokens: two tokens spell the same");
    starts_token_[static_cast<unsigned char>(tokens_[i].text[0])] = true;
  }
}

// Narrows the sorted tokens byte by byte to those that the text continues with.
const AddedToken* AddedTokens::longest_match(const MarkedText& text, std::size_t begin) const {
  const AddedToken* longest = nullptr;
  auto low = tokens_.begin();
  auto high = tokens_.end();
  for (std::size_t depth = 0; low != high; ++depth) {
    if (low->text.size() == depth) {
      if (may_match(*low, text, begin)) longest = &*low;
      ++low;
    }
    if (begin + depth == text.text.size()) break;
    const int byte = static_cast<unsigned char>(text.text[begin + depth]);
    low = std::lower_bound(low, high, byte, [&](const AddedToken& t, int b) { return byte_at(t, depth) < b; });
    high = std::upper_bound(low, high, byte, [&](int b, const AddedToken& t) { return b < byte_at(t, depth); });
  }
  return longest;
}

std::vector<AddedTokens::Segment> AddedTokens::split(const MarkedText& text) const {
  std::vector<Segment> segments;
  const std::string_view view = text.text;
  std::size_t done = 0;
  for (std::size_t at = 0; at < view.size();) {
    const bool candidate = starts_token_[static_cast<unsigned char>(view[at])];
    const AddedToken* token = candidate ? longest_match(text, at) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + token->text.size();
    if (token->strip_left) begin = skip_white_space_left(view, begin, done);
    if (token->strip_right) end = skip_white_space_right(view, end);
    if (done < begin) segments.push_back({std::nullopt, done, begin});
    segments.push_back({token->id, begin, end});
    at = done = end;
  }
  if (done < view.size()) segments.push_back({std::nullopt, done, view.size()});
  return segments;
}

}  // namespace espalier
