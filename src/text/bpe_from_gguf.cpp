#include "text/bpe_from_gguf.h"

#include <utility>

#include "base/error.h"
#include "base/untrusted_text.h"
#include "text/bpe_tokenizer.h"
#include "text/gguf_vocabulary.h"

namespace espalier {
namespace {

std::vector<AddedToken> added_tokens(const GgufVocabulary& vocabulary) {
  std::vector<AddedToken> added;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufTokenType type = vocabulary.types[id];
    const bool special = type == GgufTokenType::control || type == GgufTokenType::unknown;
    if (!special && type != GgufTokenType::user_defined) continue;
    added.push_back({.text = vocabulary.tokens[id], .id = static_cast<TokenId>(id), .special = special});
  }
  return added;
}

std::vector<std::pair<std::string, std::string>> read_merges(const Gguf& gguf) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  const std::vector<std::string>* lines = gguf.strings(kKey);
  if (lines == nullptr) input_error("{}: {} is missing", gguf.description(), kKey);
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(lines->size());
  for (const std::string& line : *lines) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      input_error("{}: {}[{}]: expected \"left right\", got {}", gguf.description(), kKey, merges.size(),
                  in_quotes(line));
    }
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return merges;
}

Pretokenizer make_pretokenizer(const NamedPretokenizer& named, std::string_view where) {
  std::vector<Pretokenizer::Step> steps;
  for (const std::string_view pattern : named.patterns) steps.push_back({.regex = PretokenizerRegex(pattern, where)});
  return Pretokenizer(std::move(steps));
}

}  // namespace

std::unique_ptr<const Tokenizer> load_bpe(const Gguf& gguf) {
  const std::string where(gguf.description());
  const NamedPretokenizer& named = find_pretokenizer(require_string(gguf, "tokenizer.ggml.pre"), where);
  const GgufVocabulary vocabulary = read_gguf_vocabulary(gguf);

  BpeParts parts;
  parts.vocabulary.tokens.assign(vocabulary.tokens.begin(), vocabulary.tokens.end());
  parts.vocabulary.merges = read_merges(gguf);
  parts.vocabulary.ignore_merges = named.ignore_merges;
  parts.added_tokens = added_tokens(vocabulary);
  if (named.nfc) parts.normalizer = Normalizer({Normalizer::Nfc{}});
  parts.pretokenizer = make_pretokenizer(named, where);
  parts.bos = vocabulary.bos;
  parts.eos = vocabulary.eos;
  parts.add_bos = vocabulary.bos && vocabulary.add_bos.value_or(named.add_bos);
  return std::make_unique<const BpeTokenizer>(std::move(parts), where);
}

}  // namespace espalier
