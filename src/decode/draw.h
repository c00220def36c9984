// The draw of one token of an answer. Everything it depends on is here: the logits, what was asked for, the tokens
// before it. Whoever wants to know what an answer says at a place asks draw_token(): the loop, replays, receipts. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>

#include "decode/request.h"
#include "decode/sampler.h"

namespace espalier {

// The ids that cannot be drawn behind `answered` tokens of an answer: its stop tokens, until there are min_tokens.
std::span<const std::int32_t> banned_tokens(const GenerateOptions& options, std::int64_t answered);

// The token behind the path. logits: of the path's last token, all of the vocabulary, as the model has them.
std::int32_t draw_token(std::span<const float> logits, const GenerateOptions& options, const TokenPath& path);

// Whether the largest logit and its id are enough for whoever draws and tells the tokens behind `answered` ones, and
// behind more.
bool largest_decides(const GenerateOptions& options, std::int64_t answered);

}  // namespace espalier
