#include "text/bpe_from_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/untrusted_text.h"
#include "text/bpe_tokenizer.h"

namespace espalier {
namespace {

[[noreturn]] void unsupported(const JsonField& field, std::string_view what) {
  input_error("{}: {} is not supported", field.where(), in_quotes(what));
}

// The members of a Sequence, in order, or the one thing itself.
std::vector<JsonField> sequence(const JsonField& field, std::string_view key) {
  if (field.at("type").string() != "Sequence") return {field};
  std::vector<JsonField> flat;
  for (const JsonField& element : field.at(key).elements()) {
    for (JsonField& inner : sequence(element, key)) flat.push_back(std::move(inner));
  }
  return flat;
}

std::vector<JsonField> optional_sequence(const JsonField& root, std::string_view part, std::string_view key) {
  const auto field = root.find(part);
  return field ? sequence(*field, key) : std::vector<JsonField>{};
}

// -- vocabulary

std::vector<AddedToken> read_added_tokens(const JsonField& root) {
  std::vector<AddedToken> tokens;
  const auto list = root.find("added_tokens");
  if (!list) return tokens;
  for (const JsonField& field : list->elements()) {
    const std::int64_t id = field.at("id").integer();
    if (id < 0 || id > INT32_MAX) input_error("{}: expected a token id, got {}", field.at("id").where(), id);
    tokens.push_back({.text = field.at("content").string(),
                      .id = static_cast<TokenId>(id),
                      .special = field.boolean_or("special", false),
                      .strip_left = field.boolean_or("lstrip", false),
                      .strip_right = field.boolean_or("rstrip", false),
                      .single_word = field.boolean_or("single_word", false),
                      .normalized = field.boolean_or("normalized", false)});
  }
  return tokens;
}

// Places tokens by id: every id below the number of tokens is used exactly once.
class TokenList {
 public:
  TokenList(std::size_t count, std::string where) : tokens_(count), used_(count), where_(std::move(where)) {}

  void place(const std::string& token, std::int64_t id) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens_.size()) {
      input_error("{}: token {} has id {}, expected 0 to {} (there are {} tokens and no gaps are allowed)", where_,
                  in_quotes(token), id, tokens_.size() - 1, tokens_.size());
    }
    const auto index = static_cast<std::size_t>(id);
    if (used_[index]) {
      input_error("{}: tokens {} and {} have the same id {}", where_, in_quotes(tokens_[index]), in_quotes(token), id);
    }
    tokens_[index] = token;
    used_[index] = true;
  }

  std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> used_;
  std::string where_;
};

std::vector<std::string> read_tokens(const JsonField& vocabulary, const std::vector<AddedToken>& added) {
  const JsonField::Json& entries = vocabulary.object();
  std::size_t count = entries.size();
  for (const AddedToken& token : added) count += entries.contains(token.text) ? 0 : 1;

  TokenList list(count, vocabulary.where());
  for (const auto& [token, id] : entries.items()) {
    if (!id.is_number_integer()) {
      input_error("{}: {}: expected an integer, got {}", vocabulary.where(), in_quotes(token), id.type_name());
    }
    list.place(token, id.get<std::int64_t>());
  }
  for (const AddedToken& token : added) {
    const auto known = entries.find(token.text);
    if (known == entries.end()) {
      list.place(token.text, token.id);
    } else if (known->get<std::int64_t>() != token.id) {
      input_error("{}: added token {} has id {}, but {} in the vocabulary", vocabulary.where(), in_quotes(token.text),
                  token.id, known->get<std::int64_t>());
    }
  }
  return list.take();
}

// "left right" or ["left", "right"].
std::pair<std::string, std::string> read_merge(const JsonField::Json& merge, std::size_t rank, const JsonField& list) {
  const auto refuse = [&]() {
    input_error("{}[{}]: expected \"left right\" or [\"left\", \"right\"], got {}", list.where(), rank,
                merge.is_string() ? in_quotes(merge.get_ref<const std::string&>()) : std::string(merge.type_name()));
  };
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) refuse();
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) refuse();
  const auto& text = merge.get_ref<const std::string&>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse();
  return {text.substr(0, space), text.substr(space + 1)};
}

void refuse_unsupported_model(const JsonField& model) {
  const std::string type = model.string_or("type", "BPE");  // files of 2020 do not say
  if (type != "BPE") unsupported(model.at("type"), type);
  if (const auto dropout = model.find("dropout")) {
    if (dropout->number() != 0) unsupported(model, "dropout");
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(key, "").empty()) unsupported(model, key);
  }
}

BpeVocabulary read_model(const JsonField& model, const std::vector<AddedToken>& added) {
  refuse_unsupported_model(model);
  BpeVocabulary vocabulary;
  vocabulary.tokens = read_tokens(model.at("vocab"), added);
  const JsonField merges = model.at("merges");
  vocabulary.merges.reserve(merges.array().size());
  for (const JsonField::Json& merge : merges.array()) {
    vocabulary.merges.push_back(read_merge(merge, vocabulary.merges.size(), merges));
  }
  vocabulary.ignore_merges = model.boolean_or("ignore_merges", false);
  vocabulary.byte_fallback = model.boolean_or("byte_fallback", false);
  vocabulary.fuse_unknown = model.boolean_or("fuse_unk", false);
  if (const auto unknown = model.find("unk_token")) {
    const auto& entries = model.at("vocab").object();
    const auto found = entries.find(unknown->string());
    if (found == entries.end()) input_error("{}: {} is not a token", unknown->where(), in_quotes(unknown->string()));
    vocabulary.unknown = found->get<TokenId>();
  }
  return vocabulary;
}

// -- normaliser, pre-tokenizer, decoder

std::string literal_pattern(const JsonField& field) {
  const JsonField pattern = field.at("pattern");
  if (!pattern.find("String")) unsupported(pattern, "Regex");
  return pattern.at("String").string();
}

struct ReadNormalizer {
  Normalizer normalizer;
  bool prepends = false;
  bool marks_spaces = false;
};

ReadNormalizer read_normalizer(const JsonField& root) {
  ReadNormalizer result;
  std::vector<Normalizer::Step> steps;
  for (const JsonField& field : optional_sequence(root, "normalizer", "normalizers")) {
    const std::string& type = field.at("type").string();
    if (type == "NFC") {
      steps.emplace_back(Normalizer::Nfc{});
    } else if (type == "Prepend") {
      steps.emplace_back(Normalizer::Prepend{field.at("prepend").string()});
      result.prepends = true;
    } else if (type == "Replace") {
      const std::string from = literal_pattern(field);
      if (from.empty()) input_error("{}: nothing to replace", field.where());
      const std::string& to = field.at("content").string();
      result.marks_spaces |= from == " " && to == kSpaceMarker;
      steps.emplace_back(Normalizer::Replace{from, to});
    } else {
      unsupported(field, type);
    }
  }
  result.normalizer = Normalizer(std::move(steps));
  return result;
}

Metaspace::Prefix read_prefix(const JsonField& field) {
  const std::string otherwise = field.boolean_or("add_prefix_space", true) ? "always" : "never";
  const std::string scheme = field.string_or("prepend_scheme", otherwise);
  if (scheme == "always") return Metaspace::Prefix::always;
  if (scheme == "first") return Metaspace::Prefix::first;
  if (scheme == "never") return Metaspace::Prefix::never;
  unsupported(field, scheme);
}

Metaspace read_metaspace(const JsonField& field) {
  const std::string& replacement = field.at("replacement").string();
  if (replacement != kSpaceMarker) unsupported(field, replacement);
  return {.prefix = read_prefix(field)};
}

Pretokenizer::Step read_split(const JsonField& field) {
  const JsonField pattern = field.at("pattern");
  const auto regex = pattern.find("Regex");
  const std::string text = regex ? regex->string() : pattern_for_literal(pattern.at("String").string());
  const std::string& behavior = field.at("behavior").string();
  const bool invert = field.boolean_or("invert", false);
  const bool keeps_matches = behavior == "Isolated" || (behavior == "Removed" && invert);
  if (!keeps_matches) unsupported(field.at("behavior"), behavior);
  return {.regex = PretokenizerRegex(text, pattern.where()), .keep_gaps = behavior == "Isolated"};
}

struct ReadPretokenizer {
  std::vector<Pretokenizer::Step> steps;
  std::optional<Metaspace> metaspace;
  bool byte_level = false;
};

void read_byte_level(const JsonField& field, ReadPretokenizer& result) {
  if (field.boolean_or("add_prefix_space", true)) unsupported(field, "add_prefix_space");
  result.byte_level = true;
  if (field.boolean_or("use_regex", true)) {
    result.steps.push_back({.regex = PretokenizerRegex(kGpt2Pattern, field.where())});
  }
}

ReadPretokenizer read_pretokenizer(const JsonField& root) {
  ReadPretokenizer result;
  const std::vector<JsonField> fields = optional_sequence(root, "pre_tokenizer", "pretokenizers");
  for (const JsonField& field : fields) {
    const std::string& type = field.at("type").string();
    if (result.byte_level) input_error("{}: {} after ByteLevel is not supported", field.where(), in_quotes(type));
    if (type == "Split") {
      result.steps.push_back(read_split(field));
    } else if (type == "Digits") {
      const bool individual = field.boolean_or("individual_digits", false);
      result.steps.push_back({.regex = PretokenizerRegex(individual ? R"(\p{N})" : R"(\p{N}+)", field.where())});
    } else if (type == "ByteLevel") {
      read_byte_level(field, result);
    } else if (type == "Metaspace" && fields.size() == 1) {
      result.metaspace = read_metaspace(field);
      if (!field.boolean_or("split", true)) continue;
      const std::string marker(kSpaceMarker);
      result.steps.push_back({.regex = PretokenizerRegex(marker + "[^" + marker + "]*", field.where())});
    } else {
      unsupported(field, type);
    }
  }
  return result;
}

struct ReadDecoder {
  bool byte_level = false;
  bool marks_spaces = false;
  bool drops_prefix = false;
};

void read_strip(const JsonField& field, ReadDecoder& result) {
  const bool one_space =
      field.at("content").string() == " " && field.at("start").integer() == 1 && field.at("stop").integer() == 0;
  if (!one_space) input_error("{}: expected to strip one space at the start", field.where());
  result.drops_prefix = true;
}

ReadDecoder read_decoder(const JsonField& root) {
  ReadDecoder result;
  for (const JsonField& field : optional_sequence(root, "decoder", "decoders")) {
    const std::string& type = field.at("type").string();
    if (type == "ByteLevel") {
      result.byte_level = true;
    } else if (type == "Metaspace") {
      result.marks_spaces = true;
      result.drops_prefix = read_metaspace(field).prefix != Metaspace::Prefix::never;
    } else if (type == "Replace") {
      if (literal_pattern(field) != kSpaceMarker || field.at("content").string() != " ") unsupported(field, type);
      result.marks_spaces = true;
    } else if (type == "Strip") {
      read_strip(field, result);
    } else if (type != "ByteFallback" && type != "Fuse") {
      unsupported(field, type);
    }
  }
  return result;
}

// -- beginning and end of text

// The token a template puts before the text.
std::optional<std::string> leading_special_token(const JsonField& root) {
  for (const JsonField& field : optional_sequence(root, "post_processor", "processors")) {
    const std::string& type = field.at("type").string();
    if (type == "ByteLevel") continue;  // moves offsets only
    if (type != "TemplateProcessing") unsupported(field, type);
    const std::vector<JsonField> single = field.at("single").elements();
    if (single.empty()) continue;
    if (const auto special = single.front().find("SpecialToken")) return special->at("id").string();
  }
  return std::nullopt;
}

std::optional<TokenId> find_token(const std::vector<std::string>& tokens, const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id] == *text) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

void read_text_ends(const JsonField& root, const TokenizerConfig& config, BpeParts& parts) {
  const std::optional<std::string> leading = leading_special_token(root);
  parts.bos = find_token(parts.vocabulary.tokens, config.bos_token ? config.bos_token : leading);
  parts.eos = find_token(parts.vocabulary.tokens, config.eos_token);
  parts.add_bos = parts.bos && config.add_bos_token.value_or(leading.has_value());
}

}  // namespace

std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view where,
                                                      const TokenizerConfig& config) {
  const nlohmann::json document = parse_json(json, where);
  const JsonField root(document, where);
  BpeParts parts;
  parts.added_tokens = read_added_tokens(root);
  parts.vocabulary = read_model(root.at("model"), parts.added_tokens);
  if (parts.vocabulary.tokens.empty()) input_error("{}: the vocabulary is empty", root.at("model").where());

  ReadNormalizer normalizer = read_normalizer(root);
  ReadPretokenizer pretokenizer = read_pretokenizer(root);
  const ReadDecoder decoder = read_decoder(root);
  const bool marks_spaces = normalizer.marks_spaces || pretokenizer.metaspace;
  if (pretokenizer.byte_level != decoder.byte_level || (!decoder.byte_level && marks_spaces != decoder.marks_spaces)) {
    input_error("{}: the decoder does not undo what normalizer and pre_tokenizer do", where);
  }
  parts.vocabulary.byte_level = pretokenizer.byte_level;
  parts.normalizer = std::move(normalizer.normalizer);
  parts.pretokenizer = Pretokenizer(std::move(pretokenizer.steps));
  parts.metaspace = pretokenizer.metaspace;
  parts.marks_spaces = decoder.marks_spaces;
  parts.drops_prefix = decoder.drops_prefix;
  parts.prefix_after_added =
      normalizer.prepends || (pretokenizer.metaspace && pretokenizer.metaspace->prefix == Metaspace::Prefix::always);
  read_text_ends(root, config, parts);
  return std::make_unique<const BpeTokenizer>(std::move(parts), where);
}

}  // namespace espalier
