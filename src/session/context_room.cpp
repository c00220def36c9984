#include "session/context_room.h"

#include <algorithm>

namespace espalier {
namespace {

// Where the turn behind the oldest one begins: at the next question that is not the last message itself.
std::size_t end_of_oldest_turn(const std::vector<ChatMessage>& messages, std::size_t first) {
  std::size_t end = first + 1;
  while (end < messages.size() && messages[end].role != "user") ++end;
  return end;
}

}  // namespace

ContextFull::ContextFull(std::int64_t tokens, std::int64_t context, bool one)
    : InputError(fmt::format("the prompt has {} tokens, the context holds {}", tokens, context)), one_message(one) {}

std::int64_t wanted_room(std::int64_t max_tokens, std::int64_t context) {
  return std::max<std::int64_t>(1, std::min(max_tokens, context / 4));
}

FittedChat fit_context(const ModelText& text, std::vector<ChatMessage> messages, const ChatContext& chat,
                       std::int64_t context, std::int64_t room) {
  FittedChat fitted{.messages = std::move(messages)};
  const std::size_t first = !fitted.messages.empty() && fitted.messages[0].role == "system" ? 1 : 0;
  while (true) {
    fitted.prompt = encode_chat(text, fitted.messages, chat);
    const std::int64_t tokens = std::ssize(fitted.prompt);
    if (tokens + room <= context) return fitted;
    const std::size_t end = end_of_oldest_turn(fitted.messages, first);
    if (end >= fitted.messages.size()) {
      if (tokens > context) throw ContextFull(tokens, context, true);
      return fitted;
    }
    fitted.messages.erase(fitted.messages.begin() + static_cast<std::ptrdiff_t>(first),
                          fitted.messages.begin() + static_cast<std::ptrdiff_t>(end));
    ++fitted.dropped_turns;
  }
}

}  // namespace espalier
