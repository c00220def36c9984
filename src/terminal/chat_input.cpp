#include "terminal/chat_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kPrompt = "> ", kMorePrompt = "... ";

constexpr std::array kChatCommands = {
    ChatCommand{"help", "", "this list"},
    ChatCommand{"reset", "", "a new conversation"},
    ChatCommand{"system", "[TEXT]", "another system message, same conversation; alone: show"},
    ChatCommand{"set", "[NAME VALUE]", "change temperature, seed, draft, ...; alone: show"},
    ChatCommand{"regen", "", "the last question once more, drawn with the next seed"},
    ChatCommand{"undo", "", "take the last question and its answer back"},
    ChatCommand{"save", "FILE", "write the conversation to a file"},
    ChatCommand{"load", "FILE", "go on with a conversation from a file"},
    ChatCommand{"tree", "", "the last round as a picture: guesses, and the right ones"},
    ChatCommand{"stats", "", "the last answer in figures, the seed, the context"},
    ChatCommand{"exit", "", "leave; /bye, /quit and Ctrl-D do too"}};

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Only a paste has them.
bool has_several_lines(std::string_view text) {
  return text.find('\n') != std::string_view::npos;
}

void check_argument(const ChatCommand& command, std::string_view text) {
  if (command.argument.empty() && !text.empty())
    input_error("/{}: expected nothing behind it, got {}", command.name, in_quotes(text));
  if (!command.argument.empty() && command.argument[0] != '[' && text.empty())
    input_error("/{}: expected {} behind it, got nothing", command.name, command.argument);
}

}  // namespace

std::span<const ChatCommand> chat_commands() {
  return kChatCommands;
}

std::string chat_help() {
  std::string text;
  for (const ChatCommand& command : kChatCommands)
    text += fmt::format("  {:<20} {}\n", fmt::format("/{} {}", command.name, command.argument), command.what);
  return text + fmt::format("  {:<20} {}\n  {:<20} {}\n  {:<20} {}\n", "//text", "a message that begins with a slash",
                            kQuotes, "begins and ends a message of several lines", "Ctrl-C", "stops an answer");
}

ChatInput parse_chat_input(const TypedText& typed) {
  const std::string_view line = typed.text;
  if (typed.quoted) return {.text = typed.text};
  if (!line.starts_with('/')) return {.text = typed.text};
  if (line.starts_with("//")) return {.text = has_several_lines(line) ? typed.text : typed.text.substr(1)};
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  std::string_view name = line.substr(1, end - 1);
  if (name == "bye" || name == "quit") name = "exit";
  const auto command = std::ranges::find(kChatCommands, name, &ChatCommand::name);
  if (command == kChatCommands.end() && has_several_lines(line)) return {.text = typed.text};
  if (command == kChatCommands.end())
    input_error("{}: no such command; /help lists them, a second slash in front sends it as a message",
                in_quotes(line.substr(0, end)));
  const std::string_view argument = trimmed(line.substr(end));
  check_argument(*command, argument);
  return {.command = std::string(command->name), .text = std::string(argument)};
}

std::optional<TypedText> ChatReader::next() {
  ended_inside_ = false;
  const std::optional<std::string> line = lines_->next(kPrompt);
  if (!line) return std::nullopt;
  if (line->starts_with(kQuotes) && !has_several_lines(*line)) return rest_of_message(line->substr(kQuotes.size()));
  return TypedText{.text = *line};
}

// `text`: what stood behind the first quotes. The message ends with the line that ends with quotes.
std::optional<TypedText> ChatReader::rest_of_message(std::string text) {
  ended_inside_ = true;
  while (!text.ends_with(kQuotes)) {
    const std::optional<std::string> line = lines_->next(kMorePrompt);
    if (!line) return std::nullopt;
    if (!text.empty()) text += '\n';
    text += *line;
  }
  ended_inside_ = false;
  text.resize(text.size() - kQuotes.size());
  if (text.ends_with('\n')) text.pop_back();
  return TypedText{.text = std::move(text), .quoted = true};
}

}  // namespace espalier
