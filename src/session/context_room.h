// A conversation that has outgrown the context loses its oldest turns. What is left is templated and computed anew, as
// a chat that began with it: K and V never move to other positions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "session/chat_prompt.h"

namespace espalier {

// A conversation, or one message of it, that the context does not hold.
struct ContextFull : InputError {
  ContextFull(std::int64_t tokens, std::int64_t context, bool one_message);
  bool one_message;  // dropping turns would not help
};

struct FittedChat {
  std::vector<ChatMessage> messages = {};  // the last one is the user's
  std::vector<TokenId> prompt = {};
  std::int64_t dropped_turns = 0;  // a turn is a question with its answer
};

// What an answer wants to find free: its tokens, though never more than a quarter of the context, or a chat that allows
// long answers could remember nothing.
std::int64_t wanted_room(std::int64_t max_tokens, std::int64_t context);

// `messages` (the last one is the user's) without as many of the oldest turns behind the system message as it takes for
// the prompt to leave `room` positions free. The last message stays in any case, with whatever room it leaves; throws
// ContextFull where it leaves none.
FittedChat fit_context(const ModelText& text, std::vector<ChatMessage> messages, const ChatContext& chat,
                       std::int64_t context, std::int64_t room);

}  // namespace espalier
