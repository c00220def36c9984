// Any bytes, as the body of each endpoint that takes one: a request whose numbers are in range, or an error of the
// client's in one line of JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/untrusted_text.h"
#include "require.h"
#include "serve/protocol/testing/parse_any.h"

namespace {

void check(const espalier::RequestFields& fields) {
  require(fields.n >= 1 && fields.n <= espalier::kMostChoices);
  require(fields.stop.size() <= espalier::kMostStops);
  require(fields.logit_bias.size() <= espalier::kMostBiases);
  require(fields.max_tokens.value_or(0) >= 0 && fields.min_tokens >= 0);
  const double temperature = fields.sampling.temperature.value_or(1);
  require(temperature >= 0 && temperature <= 2);
}

void check(const espalier::ChatPromptFields& prompt) {
  require(!prompt.messages.empty() && prompt.messages.size() <= espalier::kMostMessages);
  require(!(prompt.add_generation_prompt && prompt.continue_final_message));
}

void check(std::monostate) {}
void check(const std::vector<std::int64_t>& tokens) {
  require(std::ranges::all_of(tokens, [](std::int64_t token) { return token >= 0; }));
}
void check(const espalier::TokenizeRequest& request) {
  require(request.content.has_value() + request.prompt.has_value() + request.chat.has_value() == 1);
}
void check(const espalier::ChatRequest& request) {
  check(request.fields);
  check(request.prompt);
}
void check(const espalier::CompletionRequest& request) {
  check(request.fields);
  require(!request.prompts.empty() && request.prompts.size() <= espalier::kMostPrompts);
}
void check(const espalier::ApiError& error) {
  require(error.status == 400);
  require(espalier::is_utf8(error.message) && error.message.size() <= espalier::kMostMessageBytes);
  require(espalier::error_json(error).find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using espalier::Endpoint;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const Endpoint endpoint : {Endpoint::chat_completions, Endpoint::completions, Endpoint::apply_template,
                                  Endpoint::tokenize, Endpoint::detokenize})
    std::visit([](const auto& request) { check(request); }, espalier::parse_any_request(endpoint, body));
  return 0;
}
