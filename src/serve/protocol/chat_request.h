// The body of /v1/chat/completions, and of what only counts or shows its prompt: /apply-template and input_tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol/message_fields.h"
#include "serve/protocol/request_fields.h"
#include "text/chat_template.h"

namespace espalier {

// A conversation to be rendered. Roles are system, user, assistant and tool ("developer" is system).
struct ChatPromptFields {
  std::vector<ChatMessage> messages = {};
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is an assistant's, and the answer goes on where it ends
  std::string template_variables = {};  // chat_template_kwargs as JSON; empty: none
};

struct ChatRequest {
  RequestFields fields = {};
  ChatPromptFields prompt = {};
  bool logprobs = false;
  std::int64_t top_logprobs = 0;
};

// All throw ApiError.
ChatRequest parse_chat_request(std::string_view body);
// The prompt's fields alone: a client that counts or looks may send the rest, and nobody reads it.
ChatPromptFields parse_chat_prompt(std::string_view body);
ChatPromptFields read_chat_prompt(const BodyField& body);

// Every field that parse_chat_request() knows.
std::vector<std::string_view> chat_field_names();
std::vector<std::string_view> chat_prompt_field_names();

}  // namespace espalier
