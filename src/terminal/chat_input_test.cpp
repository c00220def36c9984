#include "terminal/chat_input.h"

#include <gtest/gtest.h>

#include <deque>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

class Script final : public LineSource {
 public:
  explicit Script(std::deque<std::string> lines) : lines_(std::move(lines)) {}
  std::optional<std::string> next(std::string_view prompt) override {
    prompts += prompt;
    if (lines_.empty()) return std::nullopt;
    std::string line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }
  std::string prompts;

 private:
  std::deque<std::string> lines_;
};

ChatInput parse_chat_line(const std::string& line) {
  return parse_chat_input({.text = line});
}

TEST(ChatInput, ASlashBeginsACommandAndTwoAMessage) {
  EXPECT_EQ(parse_chat_line("/reset").command, "reset");
  EXPECT_EQ(parse_chat_line("/save  my file ").text, "my file");
  EXPECT_EQ(parse_chat_line("//usr/bin").text, "/usr/bin");
  EXPECT_EQ(parse_chat_line("//usr/bin").command, "");
  EXPECT_EQ(parse_chat_line(" /reset").command, "") << "a message that mentions one";
}

TEST(ChatInput, LeavingHasThreeNames) {
  for (const char* line : {"/exit", "/bye", "/quit"}) EXPECT_EQ(parse_chat_line(line).command, "exit");
}

TEST(ChatInput, AnUnknownCommandIsToldAndNotSent) {
  EXPECT_EQ(complaint([] { parse_chat_line("/restart now"); }),
            "\"/restart\": no such command; /help lists them, a second slash in front sends it as a message");
}

TEST(ChatInput, ACommandIsToldWhatItLacks) {
  EXPECT_EQ(complaint([] { parse_chat_line("/save"); }), "/save: expected FILE behind it, got nothing");
  EXPECT_EQ(complaint([] { parse_chat_line("/undo it"); }), "/undo: expected nothing behind it, got \"it\"");
  EXPECT_EQ(complaint([] { parse_chat_line("/set"); }), "");
}

TEST(ChatInput, ThreeQuotesHoldAMessageOfSeveralLines) {
  Script script({"\"\"\"", "/reset", "", "two\"\"\"", "\"\"\"one line\"\"\"", "\"\"\"open"});
  ChatReader reader(script);
  const auto message = reader.next();
  EXPECT_EQ(message->text, "/reset\n\ntwo");
  EXPECT_EQ(parse_chat_input(*message).command, "");
  EXPECT_EQ(script.prompts, "> ... ... ... ");
  EXPECT_EQ(reader.next()->text, "one line");
  EXPECT_FALSE(reader.ended_inside());
  EXPECT_FALSE(reader.next().has_value());
  EXPECT_TRUE(reader.ended_inside()) << "a script is told";
}

TEST(ChatInput, APastedTextIsAMessageWhateverItBeginsWith) {
  for (const std::string pasted :
       {"\"\"\"Adds.\"\"\"\nimport os", "/usr/bin/make: error\nof a program", "// Adds.\nint x = 0;"}) {
    Script script({pasted});
    const ChatInput input = parse_chat_input(*ChatReader(script).next());
    EXPECT_EQ(input.command, "");
    EXPECT_EQ(input.text, pasted);
  }
}

TEST(ChatInput, ACommandMayHaveAPasteBehindIt) {
  const ChatInput input = parse_chat_line("/system be brief\nand kind");
  EXPECT_EQ(input.command, "system");
  EXPECT_EQ(input.text, "be brief\nand kind");
}

TEST(ChatInput, HelpNamesEveryCommandWithin80Columns) {
  const std::string help = chat_help();
  for (const ChatCommand& command : chat_commands())
    EXPECT_NE(help.find("/" + std::string(command.name)), std::string::npos) << command.name;
  for (std::size_t begin = 0; begin < help.size();) {
    const std::size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace espalier
