#include "serve/protocol/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::HasSubstr;

const std::string kHello = R"("messages": [{"role": "user", "content": "hello"}])";
const std::string kBegun =
    R"("messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "he"}])";

ChatRequest chat_of(const std::string& members) {
  return parse_chat_request("{" + members + "}");
}

std::string chat_complaint(const std::string& members) {
  return refusal([&] { chat_of(members); }).message;
}

TEST(ChatRequest, HasTheSharedFieldsAndItsOwn) {
  const ChatRequest request = chat_of(kHello + R"(, "temperature": 0.5, "logprobs": true, "top_logprobs": 20,
                                                 "chat_template_kwargs": {"enable_thinking": false})");
  EXPECT_EQ(request.fields.sampling.temperature, 0.5);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 20);
  EXPECT_EQ(request.prompt.template_variables, R"({"enable_thinking":false})");
  EXPECT_EQ(request.prompt.messages[0].content, "hello");
}

TEST(ChatRequest, NeedsMessages) {
  EXPECT_EQ(chat_complaint(R"("n": 1)"), "messages is missing");
  EXPECT_EQ(chat_complaint(R"("messages": null)"), "messages is missing");
}

TEST(ChatRequest, AlternativesNeedLogProbabilities) {
  EXPECT_THAT(chat_complaint(kHello + R"(, "top_logprobs": 1)"), HasSubstr("logprobs must be true"));
  EXPECT_FALSE(chat_of(kHello + R"(, "top_logprobs": 0)").logprobs);
  EXPECT_THAT(chat_complaint(kHello + R"(, "logprobs": true, "top_logprobs": 21)"), HasSubstr("from 0 to 20, got 21"));
  EXPECT_THAT(chat_complaint(kHello + R"(, "logprobs": 5)"), HasSubstr("logprobs: expected true or false, got 5"));
}

TEST(ChatRequest, ATurnIsOpenedUnlessTheLastMessageIsContinued) {
  EXPECT_TRUE(chat_of(kHello).prompt.add_generation_prompt);
  EXPECT_FALSE(chat_of(kHello + R"(, "add_generation_prompt": false)").prompt.add_generation_prompt);
  const ChatPromptFields continued = chat_of(kBegun + R"(, "continue_final_message": true)").prompt;
  EXPECT_TRUE(continued.continue_final_message);
  EXPECT_FALSE(continued.add_generation_prompt);
  EXPECT_TRUE(chat_of(kBegun).prompt.add_generation_prompt);
}

TEST(ChatRequest, BothAtOnceAreRefused) {
  EXPECT_THAT(chat_complaint(kBegun + R"(, "continue_final_message": true, "add_generation_prompt": true)"),
              HasSubstr("at most one"));
  EXPECT_THAT(chat_complaint(kHello + R"(, "continue_final_message": true)"),
              HasSubstr("expected an assistant message"));
}

TEST(ChatRequest, TemplateVariablesAreAnObject) {
  EXPECT_THAT(chat_complaint(kHello + R"(, "chat_template_kwargs": [1])"),
              HasSubstr("chat_template_kwargs: expected an object"));
}

TEST(ChatPrompt, ReadsNothingBeyondThePrompt) {
  EXPECT_EQ(parse_chat_prompt("{" + kHello + R"(, "temperature": "hot", "tools": [1]})").messages.size(), 1u);
}

}  // namespace
}  // namespace espalier
