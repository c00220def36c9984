#include "serve/protocol/text_endpoints.h"

#include <fmt/format.h>

#include <limits>

#include "base/untrusted_text.h"
#include "serve/protocol/api_error.h"
#include "serve/protocol/field_rules.h"
#include "serve/protocol/json_writer.h"
#include "serve/protocol/prompt_tokens.h"

namespace espalier {
namespace {

constexpr std::size_t kMostDetokenized = std::size_t{1} << 24;  // the body's limit comes first

void read_add_special(const BodyField& field, TokenizeRequest& request) {
  request.add_special = field.boolean();
}

constexpr FieldRule<TokenizeRequest> kTokenizeRules[] = {
    {"content", [](const BodyField& f, TokenizeRequest& r) { r.content = f.text(); }},
    {"prompt", [](const BodyField& f, TokenizeRequest& r) { r.prompt = f.text(); }},
    {"add_special_tokens", read_add_special},
    {"add_special", read_add_special},
    {"parse_special", [](const BodyField& f, TokenizeRequest& r) { r.parse_special = f.boolean(); }},
    {"with_pieces", [](const BodyField& f, TokenizeRequest& r) { r.with_pieces = f.boolean(); }},
};

struct DetokenizeFields {
  std::optional<std::vector<std::int64_t>> tokens = {};
};

constexpr FieldRule<DetokenizeFields> kDetokenizeRules[] = {
    {"tokens",
     [](const BodyField& f, DetokenizeFields& r) {
       r.tokens = f.integers(0, std::numeric_limits<std::int32_t>::max(), kMostDetokenized);
     }},
};

std::vector<TokenId> tokens_of(const TokenizeRequest& request, const ModelText& text, const ServerSettings& settings) {
  if (request.chat) return chat_tokens(*request.chat, text, settings.chat);
  const std::string& words = request.prompt ? *request.prompt : *request.content;
  const bool add_special = request.add_special.value_or(request.prompt.has_value());
  if (add_special) return encode_plain(text, words, request.parse_special);
  return text.tokenizer->encode(words, request.parse_special);
}

std::string piece_json(const std::string& bytes) {
  if (is_utf8(bytes)) return json_string(bytes);
  JsonArray list;
  for (const char byte : bytes) list.integer(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return list.text();
}

std::string tokens_with_pieces(const std::vector<TokenId>& tokens, const Tokenizer& tokenizer) {
  JsonArray list;
  bool first = true;
  for (const TokenId id : tokens) {
    list.raw(JsonObject().integer("id", id).raw("piece", piece_json(tokenizer.bytes(id, first))).text());
    first = tokenizer.starts_text_after(id);
  }
  return list.text();
}

void add_control_token(JsonObject& object, std::string_view name, std::optional<TokenId> id,
                       const Tokenizer& tokenizer) {
  if (id)
    object.string(name, tokenizer.bytes(*id, true));
  else
    object.null(name);
}

}  // namespace

TokenizeRequest parse_tokenize_request(std::string_view body) {
  const JsonBody json(body);
  TokenizeRequest request;
  read_fields<TokenizeRequest>(json.root(), kTokenizeRules, request);
  if (json.root().find("messages")) request.chat = read_chat_prompt(json.root());
  const int given = request.content.has_value() + request.prompt.has_value() + request.chat.has_value();
  if (given != 1)
    throw invalid_request(fmt::format("expected one of content, prompt and messages, got {}", given), "content");
  return request;
}

std::string tokenize_response(const TokenizeRequest& request, const ModelText& text, const ServerSettings& settings) {
  const std::vector<TokenId> tokens = tokens_of(request, text, settings);
  JsonObject response;
  response.raw("tokens", request.with_pieces ? tokens_with_pieces(tokens, *text.tokenizer) : json_integers(tokens));
  response.integer("count", tokens.size()).integer("max_model_len", settings.context);
  return response.text();
}

std::vector<std::int64_t> parse_detokenize_request(std::string_view body) {
  const JsonBody json(body);
  DetokenizeFields fields;
  read_fields<DetokenizeFields>(json.root(), kDetokenizeRules, fields);
  if (!fields.tokens) throw invalid_request("tokens is missing", "tokens");
  return *fields.tokens;
}

std::string detokenize_response(const std::vector<std::int64_t>& tokens, const ModelText& text,
                                const ServerSettings& settings) {
  const std::string words = text.tokenizer->decode(checked_ids(tokens, settings.vocabulary, "tokens"));
  return JsonObject().string("content", words).string("prompt", words).text();
}

std::string apply_template_response(const ChatPromptFields& prompt, const ModelText& text,
                                    const ServerSettings& settings) {
  return JsonObject().string("prompt", chat_text(prompt, text, settings.chat)).text();
}

std::string input_tokens_response(const ChatPromptFields& prompt, const ModelText& text,
                                  const ServerSettings& settings) {
  return JsonObject().integer("input_tokens", chat_tokens(prompt, text, settings.chat).size()).text();
}

std::string tokenizer_info_response(const ModelText& text, std::string_view chat_template) {
  const Tokenizer& tokenizer = *text.tokenizer;
  JsonObject info;
  add_control_token(info, "bos_token", tokenizer.bos(), tokenizer);
  add_control_token(info, "eos_token", tokenizer.eos(), tokenizer);
  info.boolean("add_bos_token", tokenizer.add_bos());
  if (chat_template.empty())
    info.null("chat_template");
  else
    info.string("chat_template", chat_template);
  return info.text();
}

std::vector<std::string_view> tokenize_field_names() {
  std::vector<std::string_view> names = chat_prompt_field_names();
  add_names<TokenizeRequest>(kTokenizeRules, names);
  return names;
}

std::vector<std::string_view> detokenize_field_names() {
  std::vector<std::string_view> names;
  add_names<DetokenizeFields>(kDetokenizeRules, names);
  return names;
}

}  // namespace espalier
