#include "serve/protocol/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CompletionRequest completion_of(const std::string& members) {
  return parse_completion_request("{" + members + "}");
}

std::string completion_complaint(const std::string& members) {
  return refusal([&] { completion_of(members); }).message;
}

TEST(CompletionRequest, APromptIsATextOrIdsOrAListOfEither) {
  const CompletionRequest text = completion_of(R"("prompt": "abc")");
  EXPECT_THAT(text.prompts, ElementsAre(PromptField("abc")));
  EXPECT_FALSE(text.many);
  EXPECT_THAT(completion_of(R"("prompt": [1, 2])").prompts, ElementsAre(PromptField(std::vector<std::int64_t>{1, 2})));
  const CompletionRequest texts = completion_of(R"("prompt": ["a", "b"])");
  EXPECT_THAT(texts.prompts, ElementsAre(PromptField("a"), PromptField("b")));
  EXPECT_TRUE(texts.many);
  EXPECT_THAT(completion_of(R"("prompt": [[1], [2, 3]])").prompts,
              ElementsAre(PromptField(std::vector<std::int64_t>{1}), PromptField(std::vector<std::int64_t>{2, 3})));
}

TEST(CompletionRequest, AnythingElseIsRefusedWithItsPlace) {
  EXPECT_EQ(completion_complaint(R"("n": 1)"), "prompt is missing");
  EXPECT_THAT(completion_complaint(R"("prompt": 3)"), HasSubstr("prompt: expected a string, a list of token ids"));
  EXPECT_THAT(completion_complaint(R"("prompt": [1, "a"])"), HasSubstr("prompt[1]: expected a whole number"));
  EXPECT_THAT(completion_complaint(R"("prompt": [1, -2])"), HasSubstr("prompt[1]: expected a whole number from 0"));
  EXPECT_THAT(completion_complaint(R"("prompt": ["a", [1]])"), HasSubstr("prompt[1]: expected the same kind"));
  EXPECT_THAT(completion_complaint(R"("prompt": ["a", 1])"), HasSubstr("prompt[1]: expected a string or"));
  EXPECT_THAT(completion_complaint(R"("prompt": [[1], ["a"]])"), HasSubstr("prompt[1][0]: expected a whole number"));
  EXPECT_THAT(completion_complaint(R"("prompt": {"text": "a"})"), HasSubstr("prompt: expected a string"));
}

TEST(CompletionRequest, ThereAreAtMost64Prompts) {
  std::string list = R"("a")";
  for (int i = 1; i < 64; ++i) list += R"(, "a")";
  EXPECT_EQ(completion_of("\"prompt\": [" + list + "]").prompts.size(), 64u);
  EXPECT_THAT(completion_complaint("\"prompt\": [" + list + R"(, "a"])"), HasSubstr("1 to 64 elements"));
}

TEST(CompletionRequest, HasEchoAndLogProbabilities) {
  const CompletionRequest request = completion_of(R"("prompt": "a", "echo": true, "logprobs": 1, "max_tokens": 1)");
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.logprobs, 1);
  EXPECT_EQ(request.fields.max_tokens, 1);
  EXPECT_EQ(completion_of(R"("prompt": "a", "logprobs": 0)").logprobs, 0);
  EXPECT_EQ(completion_of(R"("prompt": "a")").logprobs, std::nullopt);
  EXPECT_THAT(completion_complaint(R"("prompt": "a", "logprobs": 21)"), HasSubstr("from 0 to 20, got 21"));
  EXPECT_THAT(completion_complaint(R"("prompt": "a", "logprobs": true)"), HasSubstr("got true"));
}

TEST(CompletionRequest, ControlTokensMayBeSpelledUnlessItSaysNo) {
  EXPECT_TRUE(completion_of(R"("prompt": "a")").parse_special);
  EXPECT_FALSE(completion_of(R"("prompt": "a", "parse_special": false)").parse_special);
}

}  // namespace
}  // namespace espalier
