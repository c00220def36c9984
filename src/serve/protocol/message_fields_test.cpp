#include "serve/protocol/message_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::HasSubstr;

std::vector<ChatMessage> messages_of(const std::string& list) {
  const JsonBody body(fmt::format(R"({{"messages": {}}})", list));
  return read_messages(*body.root().find("messages"));
}

std::string messages_complaint(const std::string& list) {
  return refusal([&] { messages_of(list); }).message;
}

TEST(Messages, RolesAndTextsAreRead) {
  const auto messages = messages_of(R"([{"role": "system", "content": "a"}, {"role": "user", "content": "b"},
    {"role": "assistant", "content": "c"}, {"role": "tool", "content": "d"}, {"role": "user", "content": ""}])");
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[3].role, "tool");
  EXPECT_EQ(messages[3].content, "d");
}

TEST(Messages, ADeveloperIsASystem) {
  EXPECT_EQ(messages_of(R"([{"role": "developer", "content": "a"}])")[0].role, "system");
}

TEST(Messages, PartsAreJoinedWithLineFeeds) {
  const auto messages = messages_of(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]}])");
  EXPECT_EQ(messages[0].content, "a\nb\nc");
}

TEST(Messages, ImagesAndAudioAreRefusedWithTheirPlace) {
  EXPECT_EQ(messages_complaint(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                   {"type": "image_url", "image_url": {"url": "x"}}]}])"),
            R"(messages[0].content[1].type: expected "text", got "image_url": only text is understood)");
  EXPECT_THAT(messages_complaint(R"([{"role": "user", "content": [{"type": "input_audio"}]}])"),
              HasSubstr("input_audio"));
}

TEST(Messages, AnythingElseIsRefused) {
  EXPECT_THAT(messages_complaint("[]"), HasSubstr("expected 1 to 1024 elements, got an array of 0"));
  EXPECT_THAT(messages_complaint(R"("hello")"), HasSubstr("expected a list of messages, got a string"));
  EXPECT_THAT(messages_complaint(R"([7])"), HasSubstr("messages[0]: expected an object, got 7"));
  EXPECT_THAT(messages_complaint(R"([{"content": "a"}])"), HasSubstr("messages[0]: role is missing"));
  EXPECT_THAT(messages_complaint(R"([{"role": "wizard", "content": "a"}])"), HasSubstr(R"(got "wizard")"));
  EXPECT_THAT(messages_complaint(R"([{"role": "user"}])"), HasSubstr("messages[0]: content is missing"));
  EXPECT_THAT(messages_complaint(R"([{"role": "user", "content": 3}])"), HasSubstr("messages[0].content: expected"));
  EXPECT_THAT(messages_complaint(R"([{"role": "user", "content": []}])"), HasSubstr("messages[0].content: expected"));
  EXPECT_THAT(messages_complaint(R"([{"role": "user", "content": [{"text": "a"}]}])"), HasSubstr("type is missing"));
}

TEST(Messages, AnAssistantMayHaveSaidNothingButMayNotHaveCalledTools) {
  EXPECT_EQ(messages_of(R"([{"role": "assistant", "content": null, "tool_calls": []}])")[0].content, "");
  EXPECT_THAT(messages_complaint(R"([{"role": "assistant", "tool_calls": [{"id": "x"}]}])"),
              HasSubstr("messages[0].tool_calls: calls of tools are not supported"));
}

TEST(Messages, TwoAssistantsAtTheEndAreRefused) {
  const std::string assistant = R"({"role": "assistant", "content": "a"})",
                    user = R"({"role": "user", "content": "u"})";
  EXPECT_THAT(messages_complaint(fmt::format("[{}, {}, {}]", user, assistant, assistant)), HasSubstr("at the end"));
  EXPECT_EQ(messages_of(fmt::format("[{}, {}, {}]", assistant, assistant, user)).size(), 3u);
  EXPECT_EQ(messages_of(fmt::format("[{}]", assistant)).size(), 1u);
}

TEST(Messages, ThereAreAtMostAThousandAndTwentyFour) {
  std::string list = R"({"role": "user", "content": "u"})";
  for (int i = 1; i < 1024; ++i) list += R"(, {"role": "user", "content": "u"})";
  EXPECT_EQ(messages_of("[" + list + "]").size(), 1024u);
  EXPECT_THAT(messages_complaint("[" + list + R"(, {"role": "user", "content": "u"}])"), HasSubstr("array of 1025"));
}

}  // namespace
}  // namespace espalier
