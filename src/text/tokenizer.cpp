#include "text/tokenizer.h"

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/untrusted_text.h"
#include "text/bpe_from_gguf.h"
#include "text/bpe_from_json.h"
#include "text/detokenizer.h"
#include "text/gguf_vocabulary.h"
#include "text/sentencepiece_load.h"
#include "text/tokenizer_config.h"

namespace espalier {
namespace {

constexpr std::size_t kLargestTokenizer = std::size_t{256} << 20;  // bytes; the files of today have up to 35 MB

TokenizerConfig read_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return {};
  return parse_tokenizer_config(read_text_file(path, kLargestTokenizer), path.string());
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool allow_special) const {
  const TextPiece piece{std::string(text), allow_special};
  return encode(std::span(&piece, 1));
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

std::unique_ptr<const Tokenizer> load_tokenizer(const Gguf& gguf) {
  constexpr std::string_view kModel = "tokenizer.ggml.model";
  const std::string& model = require_string(gguf, kModel);
  if (model == "gpt2") return load_bpe(gguf);
  if (model == "llama") return load_sentencepiece(gguf);
  input_error("{}: {}: expected \"gpt2\" or \"llama\", got {}", gguf.description(), kModel, in_quotes(model));
}

std::unique_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  const TokenizerConfig config = read_config(directory);
  const std::filesystem::path json = directory / "tokenizer.json";
  if (std::filesystem::exists(json)) {
    return parse_tokenizer_json(read_text_file(json, kLargestTokenizer), json.string(), config);
  }
  const std::filesystem::path model = directory / "tokenizer.model";
  if (std::filesystem::exists(model)) {
    return load_sentencepiece(read_text_file(model, kLargestTokenizer), model.string(), config);
  }
  input_error("{}: expected tokenizer.json or tokenizer.model, found neither", directory.string());
}

}  // namespace espalier
