// Reads what is typed and has the chat answer or obey, until it is over.
#pragma once

#include <string_view>

#include "terminal/chat_terminal.h"
#include "terminal/terminal_chat.h"

namespace espalier {

// How to leave, and what else there is: shown to people before the first question.
inline constexpr std::string_view kChatGreeting =
    "/help lists commands, /exit or Ctrl-D leaves, Ctrl-C stops an answer\n";

// Ends with /exit, with the input, or with an interrupt where nobody sits. One bad turn (a command that nobody knows,
// say) does not end it. Throws InputError where the input ends inside a message.
void converse(TerminalChat& chat, const ChatTerminal& terminal, InterruptSource& interrupt);

}  // namespace espalier
