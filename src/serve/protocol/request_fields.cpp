#include "serve/protocol/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "decode/priority.h"
#include "serve/protocol/field_rules.h"
#include "serve/protocol/message_fields.h"
#include "serve/protocol/refused_fields.h"

namespace espalier {
namespace {

using Rule = FieldRule<RequestFields>;

constexpr std::int64_t kMostInteger = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostId = std::numeric_limits<std::int32_t>::max();

// A key of `logit_bias`: the id, in decimal.
std::int64_t id_of_key(const std::string& key, const BodyField& field) {
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMostId)
    field.refuse_because("expected a token id as key");
  return id;
}

double bias_of(const BodyField& field) {
  return field.number(-100, 100);
}

// [id or text, bias]
BiasField bias_pair(const BodyField& pair) {
  pair.array(2, 2);
  const BodyField token = pair.element(0);
  if (!token.is_string() && !token.is_number()) token.refuse("a token id or a text");
  BiasField bias{.token = std::int64_t{0}, .bias = bias_of(pair.element(1)), .path = pair.path()};
  if (token.is_string())
    bias.token = token.text();
  else
    bias.token = token.integer(0, kMostId);
  return bias;
}

void read_logit_bias(const BodyField& field, RequestFields& request) {
  if (field.is_array()) {
    field.array(0, kMostBiases);
    for (std::size_t i = 0; i < field.size(); ++i) request.logit_bias.push_back(bias_pair(field.element(i)));
    return;
  }
  if (!field.is_object()) field.refuse("an object of biases by token id, or a list of [id or text, bias]");
  const auto members = field.members();
  if (members.size() > kMostBiases) field.refuse(fmt::format("0 to {} members", kMostBiases));
  for (const auto& [key, value] : members)
    request.logit_bias.push_back({.token = id_of_key(key, value), .bias = bias_of(value), .path = value.path()});
}

void read_stop(const BodyField& field, RequestFields& request) {
  if (field.is_string()) {
    request.stop = {field.text(1, kMostStopBytes)};
    return;
  }
  if (!field.is_array()) field.refuse("a string or a list of strings");
  field.array(0, kMostStops);
  for (std::size_t i = 0; i < field.size(); ++i) request.stop.push_back(field.element(i).text(1, kMostStopBytes));
}

// In vLLM -1 means all, too.
void read_top_k(const BodyField& field, RequestFields& request) {
  request.sampling.top_k = std::max<std::int64_t>(0, field.integer(-1, kMostInteger));
}

void read_top_p(const BodyField& field, RequestFields& request) {
  request.sampling.top_p = field.number(0, 1);
  if (static_cast<float>(*request.sampling.top_p) == 0) field.refuse("a number above 0, to 1");  // or too small for one
}

void read_repetition_penalty(const BodyField& field, RequestFields& request) {
  request.sampling.repetition_penalty = field.number(0.01, 100);
}

void read_max_tokens(const BodyField& field, RequestFields& request) {
  request.max_tokens = field.integer(0, kMostInteger);
}

// In llama.cpp -1 is what the context leaves.
void read_n_predict(const BodyField& field, RequestFields& request) {
  const std::int64_t tokens = field.integer(-1, kMostInteger);
  if (tokens >= 0) request.max_tokens = tokens;
}

void read_stream_options(const BodyField& field, RequestFields& request) {
  if (const auto usage = field.find("include_usage")) request.include_usage = usage->boolean();
  if (const auto stats = field.find("continuous_usage_stats")) request.continuous_usage_stats = stats->boolean();
}

void read_prediction(const BodyField& field, RequestFields& request) {
  constexpr std::array<std::string_view, 1> kTypes = {"content"};
  if (const auto type = field.find("type")) type->one_of(kTypes);
  const auto content = field.find("content");
  if (!content) field.refuse_because("content is missing");
  request.prediction = text_of_content(*content);
}

void ignore(const BodyField&, RequestFields&) {}

template <bool RequestFields::*Flag>
void read_flag(const BodyField& field, RequestFields& request) {
  request.*Flag = field.boolean();
}

template <std::optional<double> SamplingFields::*Number, int Low, int High>
void read_sampling(const BodyField& field, RequestFields& request) {
  request.sampling.*Number = field.number(Low, High);
}

constexpr std::int64_t kLongestModelName = 1024;

// Where two write the same place, the later one wins.
constexpr Rule kRules[] = {
    {"model", [](const BodyField& f, RequestFields& r) { r.model = f.text(0, kLongestModelName); }},
    {"n_predict", read_n_predict},
    {"max_tokens", read_max_tokens},
    {"max_completion_tokens", read_max_tokens},
    {"min_tokens", [](const BodyField& f, RequestFields& r) { r.min_tokens = f.integer(0, kMostInteger); }},
    {"temperature", read_sampling<&SamplingFields::temperature, 0, 2>},
    {"top_p", read_top_p},
    {"top_k", read_top_k},
    {"min_p", read_sampling<&SamplingFields::min_p, 0, 1>},
    {"presence_penalty", read_sampling<&SamplingFields::presence_penalty, -2, 2>},
    {"frequency_penalty", read_sampling<&SamplingFields::frequency_penalty, -2, 2>},
    {"repeat_penalty", read_repetition_penalty},
    {"repetition_penalty", read_repetition_penalty},
    {"logit_bias", read_logit_bias},
    {"seed", [](const BodyField& f,
                RequestFields& r) { r.seed = f.integer(std::numeric_limits<std::int64_t>::min(), kMostInteger); }},
    {"n", [](const BodyField& f, RequestFields& r) { r.n = f.integer(1, kMostChoices); }},
    {"stop", read_stop},
    {"stop_token_ids",
     [](const BodyField& f, RequestFields& r) { r.stop_token_ids = f.integers(0, kMostId, kMostStopTokens); }},
    {"include_stop_str_in_output", read_flag<&RequestFields::include_stop_str_in_output>},
    {"ignore_eos", read_flag<&RequestFields::ignore_eos>},
    {"stream", read_flag<&RequestFields::stream>},
    {"stream_options", read_stream_options},
    {"cache_prompt", read_flag<&RequestFields::cache_prompt>},
    {"cache_salt", [](const BodyField& f, RequestFields& r) { r.cache_salt = f.text(0, kMostSaltBytes); }},
    {"priority", [](const BodyField& f, RequestFields& r) { r.priority = f.integer(kFirstPriority, kLastPriority); }},
    {"speculative.n_max", [](const BodyField& f, RequestFields& r) { r.speculation = read_longest_draft(f); }},
    {"speculation", [](const BodyField& f, RequestFields& r) { r.speculation = read_speculation(f); }},
    {"prediction", read_prediction},
    {"timings_per_token", read_flag<&RequestFields::timings_per_token>},
    {"return_token_ids", read_flag<&RequestFields::return_token_ids>},
    {"metrics", read_flag<&RequestFields::metrics>},
    {"rounds", read_flag<&RequestFields::rounds>},
    {"receipt", read_flag<&RequestFields::receipt>},
    {"user", ignore},
    {"metadata", ignore},
    {"store", ignore},
    {"service_tier", ignore},
};

}  // namespace

RequestFields read_request_fields(const BodyField& body) {
  refuse_unsupported_fields(body);
  RequestFields request;
  read_fields<RequestFields>(body, kRules, request);
  return request;
}

std::vector<std::string_view> shared_field_names() {
  std::vector<std::string_view> names = refusable_field_names();
  add_names<RequestFields>(kRules, names);
  return names;
}

}  // namespace espalier
