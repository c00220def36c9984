// Any bytes, read as a tokenizer.json and, after a byte 0xFF, a text. A tokenizer loads or throws InputError in one
// line; one that loads keeps its promises on the text: ids in range, no control token out of text that allows none,
// streamed output equal to the whole. A complete byte-level vocabulary must give back every valid text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "require.h"
#include "text/bpe_from_json.h"
#include "text/bpe_model.h"
#include "text/bpe_tokenizer.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using espalier::TokenId;

std::string stream(const espalier::Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  espalier::Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = detokenizer.push(id);
    require(!espalier::first_invalid_utf8(part));
    text += part;
  }
  return text + detokenizer.finish();
}

void check_text(const espalier::Tokenizer& tokenizer, const std::string& text) {
  for (const bool allow_special : {true, false}) {
    const std::vector<TokenId> ids = tokenizer.encode(text, allow_special);
    for (const TokenId id : ids) require(id >= 0 && id < tokenizer.vocabulary_size());
    require(stream(tokenizer, ids, false) == tokenizer.decode(ids));
    require(stream(tokenizer, ids, true) == tokenizer.decode(ids, true));
  }
  const std::string half = text.substr(0, text.size() / 2);
  if (espalier::first_invalid_utf8(half)) return;
  const espalier::TextPiece pieces[] = {{half, true}, {text.substr(half.size()), false}};
  tokenizer.encode(pieces);
}

espalier::BpeTokenizer complete_vocabulary() {
  espalier::BpeParts parts;
  for (unsigned byte = 0; byte < 256; ++byte) {
    parts.vocabulary.tokens.push_back(espalier::byte_level_character(static_cast<unsigned char>(byte)));
  }
  for (const auto& [left, right] : {std::pair{"a", "b"}, {"ab", "ab"}, {"\u0120", "a"}, {"\u0120a", "b"}}) {
    parts.vocabulary.merges.emplace_back(left, right);
    parts.vocabulary.tokens.push_back(std::string(left) + right);
  }
  parts.vocabulary.tokens.emplace_back("<|end|>");
  parts.added_tokens.push_back({.text = "<|end|>", .id = 260, .special = true});
  parts.pretokenizer = espalier::Pretokenizer({{espalier::PretokenizerRegex(espalier::kGpt2Pattern, "fuzz")}});
  return espalier::BpeTokenizer(std::move(parts), "fuzz");
}

void check_round_trip(const std::string& text) {
  static const espalier::BpeTokenizer kTokenizer = complete_vocabulary();
  const std::vector<TokenId> ids = kTokenizer.encode(text);
  for (const TokenId id : ids) require(!kTokenizer.is_special(id));
  require(kTokenizer.decode(ids) == text);
  require(kTokenizer.decode(kTokenizer.encode(text, true)) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\xFF'), input.size());
  const std::string text(input.substr(std::min(end + 1, input.size())));
  const bool valid = !espalier::first_invalid_utf8(text);
  if (valid) check_round_trip(text);
  try {
    const auto tokenizer = espalier::parse_tokenizer_json(input.substr(0, end), "tokenizer.json", {});
    check_text(*tokenizer, text);
    require(valid);
  } catch (const espalier::InputError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
