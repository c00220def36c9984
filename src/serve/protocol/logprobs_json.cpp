#include "serve/protocol/logprobs_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "serve/protocol/json_writer.h"
#include "text/utf8.h"

namespace espalier {
namespace {

// The characters of a token; what is no character is U+FFFD.
std::string token_text(std::string bytes) {
  std::string text = take_characters(bytes);
  if (!bytes.empty()) text += kReplacementCharacter;
  return text;
}

std::string byte_list(const std::string& bytes) {
  JsonArray list;
  for (const char byte : bytes) list.integer(static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return list.text();
}

// The chosen token has one log-probability, also where it is among the alternatives.
double logprob_of(const TokenLogprob& entry, const Logprobs& all) {
  return entry.token == all.chosen.token ? all.chosen.logprob : entry.logprob;
}

// {"token", "logprob", "bytes"
JsonObject chat_entry(TokenId id, bool first, double logprob, const Tokenizer& tokenizer) {
  const std::string bytes = tokenizer.bytes(id, first);
  JsonObject entry;
  entry.string("token", token_text(bytes)).raw("logprob", json_logprob(logprob)).raw("bytes", byte_list(bytes));
  return entry;
}

std::string chat_alternatives(const AnswerToken& token, const Tokenizer& tokenizer) {
  JsonArray alternatives;
  for (const TokenLogprob& other : token.logprobs->top)
    alternatives.raw(chat_entry(other.token, token.first, logprob_of(other, *token.logprobs), tokenizer).text());
  return alternatives.text();
}

// The best and the chosen one, by text, best first.
std::string text_alternatives(const AnswerToken& token, const Tokenizer& tokenizer) {
  std::vector<std::pair<std::string, double>> entries;
  const auto add = [&](const TokenLogprob& entry) {
    std::string text = token_text(tokenizer.bytes(entry.token, token.first));
    const double logprob = logprob_of(entry, *token.logprobs);
    const auto same = std::ranges::find(entries, text, &std::pair<std::string, double>::first);
    if (same == entries.end())
      entries.emplace_back(std::move(text), logprob);
    else
      same->second = std::max(same->second, logprob);
  };
  for (const TokenLogprob& other : token.logprobs->top) add(other);
  add(token.logprobs->chosen);
  JsonObject alternatives;
  for (const auto& [text, logprob] : entries) alternatives.raw(text, json_logprob(logprob));
  return alternatives.text();
}

}  // namespace

std::string chat_logprobs_json(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer) {
  JsonArray content;
  for (const AnswerToken& token : tokens) {
    if (token.stops || !token.logprobs) continue;
    JsonObject entry = chat_entry(token.id, token.first, token.logprobs->chosen.logprob, tokenizer);
    content.raw(entry.raw("top_logprobs", chat_alternatives(token, tokenizer)).text());
  }
  return JsonObject().raw("content", content.text()).null("refusal").text();
}

std::string text_logprobs_json(std::span<const AnswerToken> tokens, const Tokenizer& tokenizer) {
  JsonArray offsets, logprobs, texts, tops;
  for (const AnswerToken& token : tokens) {
    offsets.integer(token.offset);
    texts.string(token_text(tokenizer.bytes(token.id, token.first)));
    logprobs.raw(token.logprobs ? json_logprob(token.logprobs->chosen.logprob) : "null");
    tops.raw(token.logprobs ? text_alternatives(token, tokenizer) : "null");
  }
  JsonObject object;
  object.raw("text_offset", offsets.text()).raw("token_logprobs", logprobs.text());
  object.raw("tokens", texts.text()).raw("top_logprobs", tops.text());
  return object.text();
}

}  // namespace espalier
