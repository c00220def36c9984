#include "terminal/conversation.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "terminal/chat_input.h"
#include "terminal/line_reader.h"

namespace espalier {
namespace {

// What to do about it stands behind what is wrong.
std::string way_on(const ContextFull& full) {
  return fmt::format("{}: {} start again with a larger --context", full.what(),
                     full.one_message ? "shorten it, or" : "take turns back with /undo, begin anew with /reset, or");
}

// What is typed next; nothing at the end of the input. A Ctrl-C that came too late for the answer it was meant for must
// not end a conversation at a terminal: it only tells how to leave.
std::optional<TypedText> next_input(ChatReader& reader, const ChatTerminal& terminal, InterruptSource& interrupt) {
  while (true) {
    terminal.show_note("\n");
    std::optional<TypedText> typed;
    try {
      typed = reader.next();
    } catch (const LineCut& cut) {
      terminal.listener->remark(cut.what());
      continue;
    }
    if (typed) return typed;
    if (!interrupt.interrupted() && !terminal.people && reader.ended_inside())
      throw InputError("standard input: ends inside a message, expected three quotes at its end");
    if (!interrupt.interrupted() || !terminal.people) return std::nullopt;
    interrupt.clear();
    terminal.show_note("\n");
    terminal.show_note(kChatGreeting);
  }
}

// False: it was the last one.
bool handle(const ChatInput& input, TerminalChat& chat, const ChatTerminal& terminal,
            const InterruptSource& interrupt) {
  if (input.command == "exit") return false;
  if (input.command == "help")
    terminal.show_note(chat_help());
  else if (!input.command.empty())
    chat.obey(input.command, input.text, interrupt);
  else if (input.text.find_first_not_of(" \t\n") != std::string::npos)
    chat.ask(input.text, interrupt);
  return true;
}

}  // namespace

void converse(TerminalChat& chat, const ChatTerminal& terminal, InterruptSource& interrupt) {
  const std::unique_ptr<LineSource> lines = make_line_source(terminal, interrupt);
  ChatReader reader(*lines);
  while (const std::optional<TypedText> typed = next_input(reader, terminal, interrupt)) {
    interrupt.clear();
    try {
      if (!handle(parse_chat_input(*typed), chat, terminal, interrupt)) return;
    } catch (const ContextFull& full) {
      terminal.listener->remark(way_on(full));
    } catch (const InputError& error) {
      // One bad turn (a command that nobody knows, say) does not end the conversation.
      terminal.listener->remark(error.what());
    }
    interrupt.clear();  // it stopped the answer; the next prompt waits undisturbed
  }
}

}  // namespace espalier
