// Prompts of requests as tokens. What a template or a tokenizer has to say against them is an ApiError 400.
#pragma once

#include <string>
#include <vector>

#include "serve/protocol/chat_request.h"
#include "serve/protocol/request_plan.h"
#include "text/model_text.h"

namespace espalier {

// A conversation through the model's template; as text for /apply-template.
std::vector<TokenId> chat_tokens(const ChatPromptFields& prompt, const ModelText& text, const ChatContext& chat);
std::string chat_text(const ChatPromptFields& prompt, const ModelText& text, const ChatContext& chat);

// A prompt of /v1/completions: a text, with BOS in front where the model wants it, or ids as they are. `path` is where
// it stands: "prompt", "prompt[3]". echo: its text is wanted too.
PlannedPrompt plain_prompt(const PromptField& prompt, const CompletionRequest& request, const ModelText& text,
                           std::int64_t vocabulary, const std::string& path);

// Ids that a client sent. Throws ApiError naming the first that is not in the vocabulary.
std::vector<TokenId> checked_ids(const std::vector<std::int64_t>& ids, std::int64_t vocabulary,
                                 const std::string& path);

// Throws ApiError exceed_context_size, or that there are none.
void check_prompt_size(const std::vector<TokenId>& tokens, std::int64_t context, const std::string& path);

}  // namespace espalier
