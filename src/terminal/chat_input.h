// What is typed in a chat: messages, and commands that begin with a slash. "//text" is the message "/text", and three
// quotes open a message of several lines that ends with three quotes. A pasted text of several lines is a message as it
// is, with quotes, slashes and all, unless a command is its first word.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "terminal/line_reader.h"

namespace espalier {

struct ChatInput {
  std::string command = {};  // without its slash, in the words of kChatCommands; empty: a message
  std::string text = {};     // the message, or what stands behind the command
};

struct ChatCommand {
  std::string_view name;
  std::string_view argument;  // empty: none; in brackets where it may be left out
  std::string_view what;
};
// All that there are, in the order of /help.
std::span<const ChatCommand> chat_commands();
std::string chat_help();

// What was typed: a line, or the lines between quotes.
struct TypedText {
  std::string text = {};
  bool quoted = false;  // a message, whatever it begins with
};

// What that means. Throws InputError: a command that nobody knows, or one that lacks its argument or has one too many.
ChatInput parse_chat_input(const TypedText& typed);

// Reads what is typed, lines put together. One thread.
class ChatReader {
 public:
  // The source must outlive the reader.
  explicit ChatReader(LineSource& lines) : lines_(&lines) {}
  // Nothing at the end of the input, or when interrupted; what was typed so far of a message is gone then.
  std::optional<TypedText> next();
  // Whether the last one lacked its quotes at the end.
  bool ended_inside() const { return ended_inside_; }

 private:
  std::optional<TypedText> rest_of_message(std::string text);

  LineSource* lines_;
  bool ended_inside_ = false;
};

}  // namespace espalier
