// The body of /v1/completions: prompts as texts or as token ids, one or many.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/protocol/request_fields.h"

namespace espalier {

inline constexpr std::size_t kMostPrompts = 64;
inline constexpr std::int64_t kMostAnswers = 128;  // of one request: n for each prompt

using PromptField = std::variant<std::string, std::vector<std::int64_t>>;

struct CompletionRequest {
  RequestFields fields = {};
  std::vector<PromptField> prompts = {};
  bool many = false;  // they came as a list
  // Whether texts may spell control tokens: whoever writes a raw prompt writes the template's part himself.
  bool parse_special = true;
  bool echo = false;
  std::optional<std::int64_t> logprobs = {};  // alternatives
};

// Throws ApiError.
CompletionRequest parse_completion_request(std::string_view body);

std::vector<std::string_view> completion_field_names();

}  // namespace espalier
