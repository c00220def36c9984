#include "engine/fingerprint.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/sha256.h"
#include "base/untrusted_text.h"
#include "engine/canonical_text.h"
#include "engine/model_hash.h"

namespace espalier {
namespace {

constexpr std::size_t kFingerprintDigits = 32;  // 128 bits: nobody meets two models by chance

std::string known_hash(const std::optional<std::string>& hash, const OpenEngine& engine) {
  if (!hash) input_error("{}: cannot be read again for its fingerprint", engine.path.string());
  return *hash;
}

const ChatTemplate* used_template(const OpenEngine& engine, const ChatTemplate* instead) {
  if (instead != nullptr) return instead;
  return engine.text->chat_template ? &*engine.text->chat_template : nullptr;
}

std::string hash_of_template(const ChatTemplate* chat_template) {
  if (chat_template == nullptr) return "";
  return sha256(std::as_bytes(std::span(chat_template->source())));
}

// In the order of the canonical form. Text: a CanonicalText, or a list for messages.
template <typename Text>
void append_parts(const ModelFingerprint& fingerprint, Text& text) {
  text.word("model", fingerprint.model);
  text.word("weights", fingerprint.weights);
  text.word("configuration", fingerprint.configuration);
  text.word("tokenizer", fingerprint.tokenizer);
  text.numbers("end_tokens", fingerprint.end_tokens);
  text.word("chat_template", fingerprint.chat_template);
  text.word("kv", fingerprint.kv);
  text.number("arithmetic", fingerprint.arithmetic);
  text.word("float_order", fingerprint.float_order);
  text.word("activations", fingerprint.activations);
}

// Parts as messages have them. A fingerprint that was read from a receipt may have anything for a word.
struct PartList {
  explicit PartList(const ModelFingerprint& fingerprint) { append_parts(fingerprint, *this); }

  void word(const char* name, const std::string& value) { parts.emplace_back(name, value); }
  void number(const char* name, int value) { word(name, std::to_string(value)); }
  void numbers(const char* name, const std::vector<std::int32_t>& values) {
    word(name, fmt::format("{}", fmt::join(values, " ")));
  }

  std::vector<std::pair<const char*, std::string>> parts = {};
};

std::string shown_part(const std::string& value) {
  return value.empty() ? "none" : in_quotes(value);
}

}  // namespace

ModelFingerprint model_fingerprint(const OpenEngine& engine, const ChatTemplate* instead) {
  const auto& cache = engine.places.cache;
  ModelFingerprint fingerprint{.model = known_hash(model_sha256(engine.path, cache), engine),
                               .weights = std::string(name(engine.weights)),
                               .configuration = known_hash(configuration_sha256(engine.path, cache), engine),
                               .tokenizer = known_hash(tokenizer_sha256(engine.path, cache), engine),
                               .end_tokens = engine.text->stop_tokens,
                               .chat_template = hash_of_template(used_template(engine, instead)),
                               .kv = std::string(name(engine.decoder.kv_type))};
  std::ranges::sort(fingerprint.end_tokens);
  if (engine.model->weights().float_linears) {
    fingerprint.float_order = engine.device->float_order();
    fingerprint.activations = engine.device->activations();
  }
  return fingerprint;
}

std::optional<std::string> first_other_part(const ModelFingerprint& found, const ModelFingerprint& expected) {
  const PartList here(found), there(expected);
  for (std::size_t i = 0; i < here.parts.size(); ++i) {
    const auto& [name, value] = here.parts[i];
    if (const std::string& wanted = there.parts[i].second; value != wanted)
      return fmt::format("{} is {}, expected {}", name, shown_part(value), shown_part(wanted));
  }
  return std::nullopt;
}

void append_fingerprint(const ModelFingerprint& fingerprint, CanonicalText& text) {
  append_parts(fingerprint, text);
}

void append_sampling(const SamplingOptions& sampling, CanonicalText& text) {
  std::vector<std::string> bias;
  for (const auto& [id, value] : sampling.logit_bias) bias.push_back(fmt::format("{}:{}", id, canonical_real(value)));
  text.line("logit_bias", bias.empty() ? "-" : fmt::format("{}", fmt::join(bias, " ")));
  text.real("repeat_penalty", sampling.repeat_penalty);
  text.real("presence_penalty", sampling.presence_penalty);
  text.real("frequency_penalty", sampling.frequency_penalty);
  text.real("temperature", sampling.temperature);
  text.number("top_k", sampling.top_k);
  text.real("top_p", sampling.top_p);
  text.real("min_p", sampling.min_p);
}

std::string server_fingerprint(const ServerFingerprint& parts) {
  CanonicalText text("espalier server fingerprint 1");
  append_fingerprint(parts.model, text);
  text.number("context", parts.context);
  append_sampling(parts.sampling, text);
  text.text("template_variables", parts.template_variables);
  text.text("date", parts.date);
  return "b" + text.sha256().substr(0, kFingerprintDigits);
}

std::string date_for(const OpenEngine& engine, const ChatTemplate* instead, const std::string& date) {
  const ChatTemplate* chat_template = used_template(engine, instead);
  return chat_template != nullptr && chat_template->mentions_date() ? date : "";
}

}  // namespace espalier
