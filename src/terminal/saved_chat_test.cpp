#include "terminal/saved_chat.h"

#include <gtest/gtest.h>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

TEST(SavedChat, ComesBackAsItWas) {
  const std::vector<ChatMessage> messages = {
      {"system", "be brief"}, {"user", "a \"quoted\"\nquestion, 日本"}, {"assistant", "an answer"}};
  const std::vector<ChatMessage> again = parse_saved_chat(saved_chat(messages), "chat.json");
  ASSERT_EQ(again.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again[i].role, messages[i].role);
    EXPECT_EQ(again[i].content, messages[i].content);
  }
  EXPECT_TRUE(parse_saved_chat(saved_chat({}), "chat.json").empty());
}

TEST(SavedChat, AFileThatIsNoConversationIsToldWithItsPlace) {
  const auto told = [](const std::string& bytes) { return complaint([&] { parse_saved_chat(bytes, "chat.json"); }); };
  EXPECT_NE(told("hello").find("chat.json:1:1"), std::string::npos) << told("hello");
  EXPECT_NE(told("{}").find("espalier_chat"), std::string::npos);
  EXPECT_NE(told(R"({"espalier_chat": 2, "messages": []})").find("espalier_chat"), std::string::npos);
  const auto with = [](const std::string& messages) {
    return R"({"espalier_chat": 1, "messages": [)" + messages + "]}";
  };
  const std::string question = R"({"role": "user", "content": "a"})",
                    answer = R"({"role": "assistant", "content": "b"})";
  EXPECT_EQ(told(with(question + "," + answer)), "");
  EXPECT_NE(told(with(answer)).find("messages[0].role"), std::string::npos) << told(with(answer));
  EXPECT_NE(told(with(question)).find("an answer to the last question"), std::string::npos);
  EXPECT_NE(told(with(question + "," + question)).find("messages[1].role"), std::string::npos);
  EXPECT_NE(told(with(R"({"role": "user"})")).find("content"), std::string::npos);
}

}  // namespace
}  // namespace espalier
