// A conversation as a file: {"espalier_chat": 1, "messages": [{"role": "user", "content": "..."}, ...]}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace espalier {

std::string saved_chat(const std::vector<ChatMessage>& messages);

// Believes nothing: a system message or none, then questions and answers in turn, all of it UTF-8. Throws InputError
// naming the file and the place in it.
std::vector<ChatMessage> parse_saved_chat(std::string_view bytes, std::string_view file);

}  // namespace espalier
