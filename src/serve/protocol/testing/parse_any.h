// Any bytes, read as the body of any endpoint: what fuzzers and tests of hostile input call.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "serve/protocol/api_error.h"
#include "serve/protocol/chat_request.h"
#include "serve/protocol/completion_request.h"
#include "serve/protocol/routes.h"
#include "serve/protocol/text_endpoints.h"

namespace espalier {

// std::monostate: of an endpoint that has no body.
using AnyRequest = std::variant<std::monostate, ChatRequest, ChatPromptFields, CompletionRequest, TokenizeRequest,
                                std::vector<std::int64_t>, ApiError>;

// The request, or why there is none. Never throws, but std::bad_alloc.
AnyRequest parse_any_request(Endpoint endpoint, std::string_view body);

}  // namespace espalier
