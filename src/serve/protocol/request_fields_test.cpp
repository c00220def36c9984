#include "serve/protocol/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

RequestFields fields_of(const std::string& members) {
  const JsonBody body("{" + members + "}");
  return read_request_fields(body.root());
}

std::string fields_complaint(const std::string& members) {
  const ApiError error = refusal([&] { fields_of(members); });
  return error.status == 400 ? error.message : "accepted";
}

TEST(RequestFields, WhatIsNotGivenStaysOpen) {
  EXPECT_EQ(fields_of(""), RequestFields());
  EXPECT_EQ(fields_of(R"("temperature": null, "stop": null, "n": null, "no_such_field": {"a": 1})"), RequestFields());
}

TEST(RequestFields, MaxCompletionTokensBeatsMaxTokensBeatsNPredict) {
  EXPECT_EQ(fields_of(R"("n_predict": 1)").max_tokens, 1);
  EXPECT_EQ(fields_of(R"("n_predict": 1, "max_tokens": 2)").max_tokens, 2);
  EXPECT_EQ(fields_of(R"("max_completion_tokens": 3, "n_predict": 1, "max_tokens": 2)").max_tokens, 3);
  EXPECT_EQ(fields_of(R"("n_predict": -1)").max_tokens, std::nullopt);
  EXPECT_THAT(fields_complaint(R"("max_tokens": -1)"), HasSubstr("max_tokens: expected a whole number from 0"));
}

TEST(RequestFields, SamplingHasItsRanges) {
  const SamplingFields all = fields_of(R"("temperature": 2, "top_p": 1, "top_k": 40, "min_p": 0.05,
    "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 1.1)")
                                 .sampling;
  EXPECT_EQ(all, (SamplingFields{2, 1, 40, 0.05, -2, 2, 1.1}));
  EXPECT_THAT(fields_complaint(R"("temperature": 2.01)"),
              HasSubstr("temperature: expected a number from 0 to 2, got 2.01"));
  EXPECT_THAT(fields_complaint(R"("temperature": -0.01)"), HasSubstr("got -0.01"));
  EXPECT_THAT(fields_complaint(R"("temperature": "hot")"), HasSubstr("got a string"));
  EXPECT_THAT(fields_complaint(R"("top_p": 0)"), HasSubstr("top_p: expected a number above 0, to 1, got 0"));
  EXPECT_THAT(fields_complaint(R"("top_p": 1e-60)"), HasSubstr("top_p: expected a number above 0, to 1, got 1e-60"));
  EXPECT_THAT(fields_complaint(R"("top_p": 1.5)"), HasSubstr("top_p"));
  EXPECT_THAT(fields_complaint(R"("min_p": 2)"), HasSubstr("min_p"));
  EXPECT_THAT(fields_complaint(R"("presence_penalty": -3)"), HasSubstr("from -2 to 2"));
  EXPECT_THAT(fields_complaint(R"("frequency_penalty": 3)"), HasSubstr("from -2 to 2"));
  EXPECT_THAT(fields_complaint(R"("repetition_penalty": 0)"), HasSubstr("repetition_penalty"));
  EXPECT_EQ(fields_of(R"("top_k": -1)").sampling.top_k, 0);
  EXPECT_EQ(fields_of(R"("repeat_penalty": 1.5)").sampling.repetition_penalty, 1.5);
  EXPECT_EQ(fields_of(R"("repeat_penalty": 1.5, "repetition_penalty": 1.2)").sampling.repetition_penalty, 1.2);
}

TEST(RequestFields, BiasesComeAsAnObjectOrAsAList) {
  const auto by_id = fields_of(R"("logit_bias": {"5": -100, "17": 2.5})").logit_bias;
  ASSERT_EQ(by_id.size(), 2u);
  EXPECT_EQ(std::get<std::int64_t>(by_id[0].token), 17);
  EXPECT_EQ(by_id[0].bias, 2.5);
  const auto listed = fields_of(R"("logit_bias": [[5, -1], ["Hello", 100]])").logit_bias;
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(std::get<std::int64_t>(listed[0].token), 5);
  EXPECT_EQ(std::get<std::string>(listed[1].token), "Hello");
  EXPECT_TRUE(fields_of(R"("logit_bias": {})").logit_bias.empty());
}

TEST(RequestFields, BiasesHaveRangesAndALimit) {
  EXPECT_THAT(fields_complaint(R"("logit_bias": {"5": 101})"), HasSubstr("from -100 to 100, got 101"));
  EXPECT_THAT(fields_complaint(R"("logit_bias": {"x": 1})"), HasSubstr("expected a token id as key"));
  EXPECT_THAT(fields_complaint(R"("logit_bias": {"-1": 1})"), HasSubstr("expected a token id as key"));
  EXPECT_THAT(fields_complaint(R"("logit_bias": {"99999999999999999999": 1})"), HasSubstr("token id"));
  EXPECT_THAT(fields_complaint(R"("logit_bias": [[5]])"), HasSubstr("logit_bias[0]"));
  EXPECT_THAT(fields_complaint(R"("logit_bias": [[true, 1]])"), HasSubstr("logit_bias[0][0]"));
  EXPECT_THAT(fields_complaint(R"("logit_bias": 3)"), HasSubstr("logit_bias: expected"));
  std::string many;
  for (int i = 0; i <= 1024; ++i) many += fmt::format("{}\"{}\": 1", i == 0 ? "" : ", ", i);
  EXPECT_THAT(fields_complaint("\"logit_bias\": {" + many + "}"), HasSubstr("0 to 1024"));
}

TEST(RequestFields, ASeedIsAnyWordOf64Bits) {
  EXPECT_EQ(fields_of(R"("seed": -9223372036854775808)").seed, INT64_MIN);
  EXPECT_EQ(fields_of(R"("seed": 9223372036854775807)").seed, INT64_MAX);
  EXPECT_THAT(fields_complaint(R"("seed": 9223372036854775808)"), HasSubstr("seed"));
  EXPECT_THAT(fields_complaint(R"("seed": 0.5)"), HasSubstr("seed"));
}

TEST(RequestFields, ChoicesAreOneToSixteen) {
  EXPECT_EQ(fields_of(R"("n": 16)").n, 16);
  EXPECT_THAT(fields_complaint(R"("n": 0)"), HasSubstr("n: expected a whole number from 1 to 16, got 0"));
  EXPECT_THAT(fields_complaint(R"("n": 17)"), HasSubstr("got 17"));
}

TEST(RequestFields, StopsAreUpToSixteenStringsOfUpTo256Bytes) {
  EXPECT_THAT(fields_of(R"("stop": "\n")").stop, ElementsAre("\n"));
  EXPECT_THAT(fields_of(R"("stop": ["a", "b"])").stop, ElementsAre("a", "b"));
  EXPECT_TRUE(fields_of(R"("stop": [])").stop.empty());
  EXPECT_EQ(fields_of("\"stop\": \"" + std::string(256, 'x') + "\"").stop[0].size(), 256u);
  EXPECT_THAT(fields_complaint("\"stop\": \"" + std::string(257, 'x') + "\""), HasSubstr("1 to 256 bytes, got 257"));
  EXPECT_THAT(fields_complaint(R"("stop": "")"), HasSubstr("1 to 256 bytes, got 0"));
  EXPECT_THAT(fields_complaint(R"("stop": ["a", 3])"), HasSubstr("stop[1]: expected a string"));
  std::string list = R"("a")";
  for (int i = 1; i < 16; ++i) list += R"(, "a")";
  EXPECT_EQ(fields_of("\"stop\": [" + list + "]").stop.size(), 16u);
  EXPECT_THAT(fields_complaint("\"stop\": [" + list + R"(, "a"])"), HasSubstr("stop: expected 0 to 16 elements"));
}

TEST(RequestFields, EndsAndMinimaAreRead) {
  const RequestFields fields = fields_of(R"("stop_token_ids": [3, 9], "ignore_eos": true, "min_tokens": 5,
                                            "include_stop_str_in_output": true)");
  EXPECT_THAT(fields.stop_token_ids, ElementsAre(3, 9));
  EXPECT_TRUE(fields.ignore_eos);
  EXPECT_TRUE(fields.include_stop_str_in_output);
  EXPECT_EQ(fields.min_tokens, 5);
  EXPECT_THAT(fields_complaint(R"("stop_token_ids": [-1])"), HasSubstr("stop_token_ids[0]"));
  EXPECT_THAT(fields_complaint(R"("stop_token_ids": 3)"), HasSubstr("expected an array"));
}

TEST(RequestFields, StreamOptionsAreRead) {
  const RequestFields fields =
      fields_of(R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true, "x": 1})");
  EXPECT_TRUE(fields.stream && fields.include_usage && fields.continuous_usage_stats);
  EXPECT_THAT(fields_complaint(R"("stream": 1)"), HasSubstr("stream: expected true or false, got 1"));
  EXPECT_THAT(fields_complaint(R"("stream_options": true)"), HasSubstr("stream_options: expected an object"));
  EXPECT_THAT(fields_complaint(R"("stream_options": {"include_usage": 1})"), HasSubstr("stream_options.include_usage"));
}

TEST(RequestFields, CacheAndPriorityAreRead) {
  const RequestFields fields = fields_of(R"("cache_prompt": false, "cache_salt": "me", "priority": -10)");
  EXPECT_FALSE(fields.cache_prompt);
  EXPECT_EQ(fields.cache_salt, "me");
  EXPECT_EQ(fields.priority, -10);
  EXPECT_THAT(fields_complaint(R"("priority": 11)"), HasSubstr("priority: expected a whole number from -10 to 10"));
  EXPECT_THAT(fields_complaint("\"cache_salt\": \"" + std::string(257, 's') + "\""), HasSubstr("0 to 256 bytes"));
}

TEST(RequestFields, LlamaCppsNameForSpeculationIsTakenUnlessOursIsThere) {
  EXPECT_FALSE(fields_of(R"("speculation": false)").speculation->on);
  EXPECT_FALSE(fields_of(R"("speculative.n_max": 0)").speculation->on);
  EXPECT_TRUE(fields_of(R"("speculative.n_max": 0, "speculation": true)").speculation->on);
}

TEST(RequestFields, APredictionIsATextOrParts) {
  EXPECT_EQ(fields_of(R"("prediction": {"type": "content", "content": "abc"})").prediction, "abc");
  EXPECT_EQ(fields_of(R"("prediction": {"type": "content", "content": [{"type": "text", "text": "a"}]})").prediction,
            "a");
  EXPECT_THAT(fields_complaint(R"("prediction": {"type": "dream", "content": "x"})"),
              HasSubstr(R"(prediction.type: expected "content", got "dream")"));
  EXPECT_THAT(fields_complaint(R"("prediction": {"type": "content"})"), HasSubstr("content is missing"));
  EXPECT_THAT(fields_complaint(R"("prediction": "abc")"), HasSubstr("prediction: expected an object"));
}

TEST(RequestFields, ExtrasAreFlags) {
  const RequestFields fields = fields_of(R"("timings_per_token": true, "return_token_ids": true, "metrics": true,
                                            "rounds": true, "receipt": true)");
  EXPECT_TRUE(fields.timings_per_token && fields.return_token_ids && fields.metrics && fields.rounds && fields.receipt);
  for (const char* name : {"timings_per_token", "return_token_ids", "metrics", "rounds", "receipt", "ignore_eos"})
    EXPECT_THAT(fields_complaint(fmt::format(R"("{}": "yes")", name)),
                AllOf(HasSubstr(name), HasSubstr("true or false")));
}

TEST(RequestFields, WhatIsUnusedMayBeAnything) {
  EXPECT_EQ(fields_of(R"("user": 7, "metadata": [1], "store": "x", "service_tier": {"a": {}})"), RequestFields());
}

}  // namespace
}  // namespace espalier
