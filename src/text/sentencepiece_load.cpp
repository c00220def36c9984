#include "text/sentencepiece_load.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "text/gguf_vocabulary.h"
#include "text/sentencepiece_tokenizer.h"

namespace espalier {
namespace {

using Type = SentencePieceModel::Type;

const std::vector<double>& read_scores(const Gguf& gguf, std::size_t count) {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  const std::vector<double>* scores = gguf.numbers(kKey);
  if (scores == nullptr) input_error("{}: {} is missing", gguf.description(), kKey);
  if (scores->size() != count) {
    input_error("{}: {}: expected {} entries, one for each token, got {}", gguf.description(), kKey, count,
                scores->size());
  }
  for (std::size_t id = 0; id < count; ++id) {
    if (!std::isfinite((*scores)[id])) input_error("{}: {}[{}] is not a number", gguf.description(), kKey, id);
  }
  return *scores;
}

SentencePieceModel model_from(const Gguf& gguf, const GgufVocabulary& vocabulary) {
  SentencePieceModel model{.algorithm = SentencePieceModel::Algorithm::bpe, .remove_extra_whitespaces = false};
  const std::vector<double>& scores = read_scores(gguf, vocabulary.tokens.size());
  model.pieces.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const auto type = static_cast<Type>(vocabulary.types[id]);
    model.byte_fallback |= type == Type::byte;
    model.pieces.push_back({vocabulary.tokens[id], static_cast<float>(scores[id]), type});
  }
  model.add_dummy_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  return model;
}

std::optional<TokenId> find_piece(const SentencePieceParts& parts, const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  for (const AddedToken& token : parts.added_tokens) {
    if (token.text == *text) return token.id;
  }
  for (std::size_t id = 0; id < parts.model.pieces.size(); ++id) {
    if (parts.model.pieces[id].text == *text) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

}  // namespace

std::unique_ptr<const Tokenizer> load_sentencepiece(const Gguf& gguf) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(gguf);
  SentencePieceParts parts;
  parts.model = model_from(gguf, vocabulary);
  parts.bos = vocabulary.bos;
  parts.eos = vocabulary.eos;
  parts.add_bos = vocabulary.add_bos.value_or(true);
  return std::make_unique<const SentencePieceTokenizer>(std::move(parts), gguf.description());
}

std::unique_ptr<const Tokenizer> load_sentencepiece(std::string_view model_bytes, std::string_view where,
                                                    const TokenizerConfig& config) {
  SentencePieceParts parts;
  parts.model = parse_sentencepiece_model(model_bytes, where);
  parts.added_tokens = config.added_tokens;
  // openPangu's wrapper ignores its own "legacy" entry.
  parts.prefix_after_added = config.legacy || config.tokenizer_class == "PanguTokenizer";
  parts.bos = find_piece(parts, config.bos_token.value_or("<s>"));
  parts.eos = find_piece(parts, config.eos_token.value_or("</s>"));
  parts.add_bos = config.add_bos_token.value_or(true);
  return std::make_unique<const SentencePieceTokenizer>(std::move(parts), where);
}

}  // namespace espalier
