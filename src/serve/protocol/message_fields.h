// The messages of a chat as a client sends them.
#pragma once

#include <string>
#include <vector>

#include "serve/protocol/json_body.h"
#include "text/chat_template.h"

namespace espalier {

inline constexpr std::size_t kMostMessages = 1024;
inline constexpr std::size_t kMostParts = 1024;  // of one message

// "content": a text, or parts of type text, joined with line feeds. Other parts (image, audio) are refused.
std::string text_of_content(const BodyField& content);

// One or more messages; roles are system, user, assistant and tool ("developer" is system). Two assistant messages at
// the end are refused: which of them is to be answered, or continued?
std::vector<ChatMessage> read_messages(const BodyField& messages);

}  // namespace espalier
