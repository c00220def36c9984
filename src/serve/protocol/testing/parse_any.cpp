#include "serve/protocol/testing/parse_any.h"

namespace espalier {

AnyRequest parse_any_request(Endpoint endpoint, std::string_view body) {
  try {
    switch (endpoint) {
      case Endpoint::chat_completions: return parse_chat_request(body);
      case Endpoint::completions: return parse_completion_request(body);
      case Endpoint::input_tokens:
      case Endpoint::apply_template: return parse_chat_prompt(body);
      case Endpoint::tokenize: return parse_tokenize_request(body);
      case Endpoint::detokenize: return parse_detokenize_request(body);
      default: return {};
    }
  } catch (const ApiError& error) {
    return error;
  }
}

}  // namespace espalier
