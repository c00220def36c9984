#include "engine/receipt.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/sha256.h"
#include "base/untrusted_text.h"
#include "engine/canonical_text.h"
#include "trace/record_json.h"

namespace espalier {
namespace {

using ReceiptJson = nlohmann::ordered_json;

constexpr const char* kVersionField = "espalier_receipt";
constexpr std::string_view kFinishReasons[] = {"stop", "length", "context", "cancelled"};
constexpr std::int64_t kMostReceiptId = std::numeric_limits<std::int32_t>::max();
constexpr float kMinusInfinityBias = -std::numeric_limits<float>::infinity();

// --- writing ---------------------------------------------------------------------------------------------------------

// The double that is written and read with a float's few digits, 0.8 and not 0.800000011920929.
double written_real(float value) {
  const std::string digits = fmt::format("{}", value);
  double number = value;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return static_cast<float>(number) == value ? number : double{value};
}

// A bias of minus infinity, which JSON has no word for, is null.
ReceiptJson bias_list(const SamplingOptions& sampling) {
  ReceiptJson list = ReceiptJson::array();
  for (const auto& [id, bias] : sampling.logit_bias)
    list.push_back({id, bias == kMinusInfinityBias ? ReceiptJson() : ReceiptJson(written_real(bias))});
  return list;
}

ReceiptJson word_or_null(const std::string& word) {
  return word.empty() ? ReceiptJson() : ReceiptJson(word);
}

ReceiptJson fingerprint_json(const ModelFingerprint& fingerprint) {
  return {{"model", fingerprint.model},
          {"weights", fingerprint.weights},
          {"configuration", word_or_null(fingerprint.configuration)},
          {"tokenizer", fingerprint.tokenizer},
          {"end_tokens", fingerprint.end_tokens},
          {"chat_template", word_or_null(fingerprint.chat_template)},
          {"kv", fingerprint.kv},
          {"arithmetic", fingerprint.arithmetic},
          {"float_order", word_or_null(fingerprint.float_order)},
          {"activations", word_or_null(fingerprint.activations)}};
}

// The seed is a text: readers that have no integers of 64 bits, browsers for one, would round it.
ReceiptJson options_json_of(const TextOptions& options) {
  const GenerateOptions& generate = options.generate;
  const SamplingOptions& sampling = generate.sampling;
  return {{"logit_bias", bias_list(sampling)},
          {"repeat_penalty", written_real(sampling.repeat_penalty)},
          {"presence_penalty", written_real(sampling.presence_penalty)},
          {"frequency_penalty", written_real(sampling.frequency_penalty)},
          {"temperature", written_real(sampling.temperature)},
          {"top_k", sampling.top_k},
          {"top_p", written_real(sampling.top_p)},
          {"min_p", written_real(sampling.min_p)},
          {"seed", std::to_string(generate.seed)},
          {"max_tokens", generate.max_tokens},
          {"min_tokens", generate.min_tokens},
          {"stop", options.stop},
          {"include_stop", options.include_stop},
          {"stop_tokens", generate.stop_tokens},
          {"ignore_eos", options.ignore_eos},
          {"loop_guard", options.loop_guard}};
}

// --- reading ---------------------------------------------------------------------------------------------------------

// What is not known could be what the text depends on.
void expect_fields(const JsonField& object, std::initializer_list<std::string_view> names) {
  for (const auto& [name, value] : object.object().items())
    if (std::ranges::find(names, name) == names.end())
      input_error("{}: unknown field {}, expected a receipt of version {}", object.where(), in_quotes(name),
                  kReceiptVersion);
}

float real_from(const JsonField& field) {
  const double number = field.number();
  const auto value = static_cast<float>(number);
  if (!std::isfinite(value) || written_real(value) != number)
    input_error("{}: expected a 32-bit number in its fewest digits, got {}", field.where(), number);
  return value;
}

std::string optional_word(const JsonField& object, const char* name) {
  const JsonField field = object.at(name);  // null, but there
  return field.is_null() ? "" : field.string();
}

std::string word_from(const JsonField& field) {
  const std::string& word = field.string();
  const auto odd = [](char c) { return static_cast<unsigned char>(c) <= ' ' || static_cast<unsigned char>(c) >= 0x7f; };
  if (word.empty() || word == "-" || word.size() > 256 || std::ranges::any_of(word, odd))
    input_error("{}: expected a word, got {}", field.where(), in_quotes(word));
  return word;
}

std::string optional_word_from(const JsonField& object, const char* name) {
  return object.at(name).is_null() ? "" : word_from(object.at(name));
}

std::vector<std::int32_t> ids_from(const JsonField& field) {
  const std::vector<std::int64_t> ids = field.integers(0, kMostReceiptId);
  return {ids.begin(), ids.end()};
}

ModelFingerprint fingerprint_from(const JsonField& object) {
  expect_fields(object, {"model", "weights", "configuration", "tokenizer", "end_tokens", "chat_template", "kv",
                         "arithmetic", "float_order", "activations"});
  return {.model = word_from(object.at("model")),
          .weights = word_from(object.at("weights")),
          .configuration = optional_word_from(object, "configuration"),
          .tokenizer = word_from(object.at("tokenizer")),
          .end_tokens = ids_from(object.at("end_tokens")),
          .chat_template = optional_word_from(object, "chat_template"),
          .kv = word_from(object.at("kv")),
          .arithmetic = static_cast<int>(object.at("arithmetic").integer(1, kMostReceiptId)),
          .float_order = optional_word_from(object, "float_order"),
          .activations = optional_word_from(object, "activations")};
}

std::uint64_t seed_from(const JsonField& field) {
  const std::string& digits = field.string();
  std::uint64_t seed = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, seed);
  if (error != std::errc() || stop != end || std::to_string(seed) != digits)
    input_error("{}: expected a text of the digits of 0 to {}, got {}", field.where(), UINT64_MAX, in_quotes(digits));
  return seed;
}

void bias_from(const JsonField& list, SamplingOptions& sampling) {
  std::int64_t last = -1;
  for (const JsonField& pair : list.elements()) {
    if (pair.array().size() != 2)
      input_error("{}: expected an id and a value, got {} values", pair.where(), pair.array().size());
    const std::int64_t id = pair.element(0).integer(last + 1, kMostReceiptId);  // ascending: one form for one bias
    const JsonField value = pair.element(1);
    sampling.logit_bias.emplace(static_cast<std::int32_t>(id), value.is_null() ? kMinusInfinityBias : real_from(value));
    last = id;
  }
}

SamplingOptions sampling_from(const JsonField& object) {
  SamplingOptions sampling{.repeat_penalty = real_from(object.at("repeat_penalty")),
                           .presence_penalty = real_from(object.at("presence_penalty")),
                           .frequency_penalty = real_from(object.at("frequency_penalty")),
                           .temperature = real_from(object.at("temperature")),
                           .top_k = object.at("top_k").integer(),
                           .top_p = real_from(object.at("top_p")),
                           .min_p = real_from(object.at("min_p"))};
  bias_from(object.at("logit_bias"), sampling);
  return sampling;
}

TextOptions options_from(const JsonField& object) {
  expect_fields(object, {"logit_bias", "repeat_penalty", "presence_penalty", "frequency_penalty", "temperature",
                         "top_k", "top_p", "min_p", "seed", "max_tokens", "min_tokens", "stop", "include_stop",
                         "stop_tokens", "ignore_eos", "loop_guard"});
  TextOptions options{.generate = {.sampling = sampling_from(object),
                                   .seed = seed_from(object.at("seed")),
                                   .max_tokens = count_from(object.at("max_tokens")),
                                   .stop_tokens = ids_from(object.at("stop_tokens")),
                                   .min_tokens = count_from(object.at("min_tokens"))},
                      .include_stop = object.at("include_stop").boolean(),
                      .ignore_eos = object.at("ignore_eos").boolean(),
                      .loop_guard = object.at("loop_guard").boolean()};
  for (const JsonField& stop : object.at("stop").elements()) options.stop.push_back(stop.string());
  try {
    check_options(options);
  } catch (const InputError& error) {
    input_error("{}: {}", object.where(), error.what());
  }
  return options;
}

void check_version(const JsonField& object) {
  const auto version = object.is_object() ? object.find(kVersionField) : std::nullopt;
  if (!version) input_error("{}: no receipt, expected an object with \"{}\"", object.where(), kVersionField);
  if (version->json() != kReceiptVersion)
    input_error("{}: a receipt of version {}, expected {}", object.where(), in_quotes(version->json().dump()),
                kReceiptVersion);
}

}  // namespace

void check_receipts(const Device& device, std::string_view asked_by) {
  if (device.row_independent()) return;
  input_error("{}: the device {} is not row independent, so that texts depend on their company: it writes no receipts",
              asked_by, device.name());
}

void check_receipts(const TextOptions& options) {
  for (const std::string& stop : options.stop)
    if (!is_utf8(stop)) input_error("--stop: expected UTF-8 where there are receipts, got {}", in_quotes(stop));
}

ReceiptOrigin receipt_origin(const OpenEngine& engine, const ChatContext& chat, bool raw) {
  const ChatTemplate* instead = chat.instead.get();
  return {.fingerprint = model_fingerprint(engine, instead),
          .context = engine.decoder.context,
          .date = raw ? "" : date_for(engine, instead, chat.date_iso)};
}

Receipt make_receipt(const ReceiptOrigin& origin, const TextOptions& options, std::span<const std::int32_t> prompt,
                     const GenerateResult& result) {
  return {.origin = origin,
          .prompt = {prompt.begin(), prompt.end()},
          .options = options,
          .answer = result.tokens,
          .finish_reason = std::string(name(result.finish_reason))};
}

std::string canonical_receipt(const Receipt& receipt) {
  const GenerateOptions& generate = receipt.options.generate;
  CanonicalText text(fmt::format("espalier receipt {}", kReceiptVersion));
  append_fingerprint(receipt.origin.fingerprint, text);
  text.number("context", receipt.origin.context);
  text.text("date", receipt.origin.date);
  append_sampling(generate.sampling, text);
  text.natural("seed", generate.seed);
  text.number("max_tokens", generate.max_tokens);
  text.number("min_tokens", generate.min_tokens);
  text.texts("stop", receipt.options.stop);
  text.flag("include_stop", receipt.options.include_stop);
  text.numbers("stop_tokens", generate.stop_tokens);
  text.flag("ignore_eos", receipt.options.ignore_eos);
  text.flag("loop_guard", receipt.options.loop_guard);
  text.numbers("prompt", receipt.prompt);
  text.numbers("answer", receipt.answer);
  text.word("finish_reason", receipt.finish_reason);
  return text.lines();
}

std::string receipt_sha256(const Receipt& receipt) {
  const std::string text = canonical_receipt(receipt);
  return sha256(std::as_bytes(std::span(text)));
}

std::string receipt_json(const Receipt& receipt) {
  check_receipts(receipt.options);
  const ReceiptOrigin& origin = receipt.origin;
  const ReceiptJson object = {{kVersionField, kReceiptVersion},
                              {"fingerprint", fingerprint_json(origin.fingerprint)},
                              {"context", origin.context},
                              {"date", word_or_null(origin.date)},
                              {"options", options_json_of(receipt.options)},
                              {"prompt", receipt.prompt},
                              {"answer", receipt.answer},
                              {"finish_reason", receipt.finish_reason},
                              {"sha256", receipt_sha256(receipt)}};
  return object.dump();
}

Receipt read_receipt(std::string_view json, std::string_view where) {
  const nlohmann::json document = parse_json(json, where);
  const JsonField object(document, where);
  check_version(object);
  expect_fields(object, {kVersionField, "fingerprint", "context", "date", "options", "prompt", "answer",
                         "finish_reason", "sha256"});
  Receipt receipt{.origin = {.fingerprint = fingerprint_from(object.at("fingerprint")),
                             .context = count_from(object.at("context"), 1),
                             .date = optional_word(object, "date")},
                  .prompt = ids_from(object.at("prompt")),
                  .options = options_from(object.at("options")),
                  .answer = ids_from(object.at("answer")),
                  .finish_reason = object.at("finish_reason").string()};
  object.at("finish_reason").one_of(kFinishReasons);
  const std::string& stated = object.at("sha256").string();
  const std::string computed = receipt_sha256(receipt);
  if (stated != computed)
    input_error("{}: changed since it was written: SHA-256 {}, expected {}", object.where(), computed,
                in_quotes(stated));
  return receipt;
}

}  // namespace espalier
