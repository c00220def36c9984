// The endpoints that only turn text into tokens and back: /tokenize, /detokenize, /apply-template, input_tokens,
// /tokenizer_info. Bodies in, bodies out; all throw ApiError. No state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/protocol/request_plan.h"

namespace espalier {

// One of the three is there.
struct TokenizeRequest {
  std::optional<std::string> content = {};    // llama.cpp: a text, without BOS
  std::optional<std::string> prompt = {};     // vLLM: a text, with BOS where the model wants it
  std::optional<ChatPromptFields> chat = {};  // vLLM: `messages`, as /v1/chat/completions reads them
  std::optional<bool> add_special = {};       // the other way round about BOS; not with messages
  bool parse_special = true;                  // texts may spell control tokens
  bool with_pieces = false;                   // tokens are {"id", "piece"}; a piece that is no UTF-8 is a list of bytes
};
TokenizeRequest parse_tokenize_request(std::string_view body);
std::string tokenize_response(const TokenizeRequest& request, const ModelText& text, const ServerSettings& settings);

// In `tokens`; out both `content` (llama.cpp) and `prompt` (vLLM).
std::vector<std::int64_t> parse_detokenize_request(std::string_view body);
std::string detokenize_response(const std::vector<std::int64_t>& tokens, const ModelText& text,
                                const ServerSettings& settings);

// In as chat (parse_chat_prompt); out {"prompt"}.
std::string apply_template_response(const ChatPromptFields& prompt, const ModelText& text,
                                    const ServerSettings& settings);
// Likewise; out {"input_tokens"}: what chat would prefill, also where that is more than the context.
std::string input_tokens_response(const ChatPromptFields& prompt, const ModelText& text,
                                  const ServerSettings& settings);

// What lm-evaluation-harness asks for before it counts with /tokenize instead of a tokenizer of its own (vLLM's names):
// control tokens as texts, and the chat template. Absent ones are null; an empty template is absent.
std::string tokenizer_info_response(const ModelText& text, std::string_view chat_template);

std::vector<std::string_view> tokenize_field_names();
std::vector<std::string_view> detokenize_field_names();

}  // namespace espalier
