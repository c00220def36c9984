// The fields that chat and text completions share, as a client sent them: what was not given stays empty, so that
// whoever plans the answer (request_plan.h) can ask the server's flags and the model instead. Types and ranges are
// checked here as far as they can be without a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/protocol/json_body.h"
#include "serve/protocol/speculation_field.h"

namespace espalier {

inline constexpr std::int64_t kMostChoices = 16;
inline constexpr std::size_t kMostStops = 16;
inline constexpr std::size_t kMostStopBytes = 256;
inline constexpr std::size_t kMostBiases = 1024;
inline constexpr std::size_t kMostStopTokens = 1024;
inline constexpr std::size_t kMostSaltBytes = 256;
inline constexpr std::int64_t kMostAlternatives = 20;

// Sampling as somebody wishes it: a request, the server's flags, a model's generation config.
struct SamplingFields {
  std::optional<double> temperature = {};
  std::optional<double> top_p = {};
  std::optional<std::int64_t> top_k = {};  // 0: off
  std::optional<double> min_p = {};
  std::optional<double> presence_penalty = {};
  std::optional<double> frequency_penalty = {};
  std::optional<double> repetition_penalty = {};

  bool operator==(const SamplingFields&) const = default;
};

// A bias for an id, or for the one token that a text is.
struct BiasField {
  std::variant<std::int64_t, std::string> token;
  double bias = 0;
  std::string path;  // where it stands, for messages

  bool operator==(const BiasField&) const = default;
};

struct RequestFields {
  std::optional<std::string> model = {};
  std::optional<std::int64_t> max_tokens = {};
  std::int64_t min_tokens = 0;
  SamplingFields sampling = {};
  std::vector<BiasField> logit_bias = {};
  std::optional<std::int64_t> seed = {};
  std::int64_t n = 1;
  std::vector<std::string> stop = {};
  std::vector<std::int64_t> stop_token_ids = {};
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;           // stream_options, of no effect without a stream
  bool continuous_usage_stats = false;  // likewise; needs include_usage
  bool cache_prompt = true;
  std::string cache_salt = {};
  std::int64_t priority = 0;
  std::optional<SpeculationField> speculation = {};
  std::optional<std::string> prediction = {};
  bool timings_per_token = false;
  bool return_token_ids = false;
  bool metrics = false;
  bool rounds = false;
  bool receipt = false;

  bool operator==(const RequestFields&) const = default;
};

// Reads the shared fields of a body, and refuses those that would change the text and cannot be honoured.
RequestFields read_request_fields(const BodyField& body);

// The names that read_request_fields() looks at, those that are accepted without effect and those it refuses included.
std::vector<std::string_view> shared_field_names();

}  // namespace espalier
