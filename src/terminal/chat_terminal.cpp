#include "terminal/chat_terminal.h"

#include <fmt/format.h>

namespace espalier {

void ChatTerminal::say(std::string_view text) const {
  people ? print(text) : tell(text);
}

void ChatTerminal::show_note(std::string_view text) const {
  if (people) say(text);
}

void ChatTerminal::show_dim(std::string_view text) const {
  show_note(fmt::format("{}{}{}", colour ? "\033[2m" : "", text, colour ? "\033[0m" : ""));
}

}  // namespace espalier
