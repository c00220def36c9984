#include "serve/protocol/request_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "serve/protocol/testing/refusal.h"
#include "serve/protocol/testing/tiny_server.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RequestPlanTest : public ::testing::Test {
 protected:
  RequestPlan completion(const std::string& members) const {
    return plan_completion(parse_completion_request("{" + members + "}"), text_, settings_, ~std::uint64_t{0});
  }
  RequestPlan chat(const std::string& members) const {
    return plan_chat(parse_chat_request(R"({"messages": [{"role": "user", "content": "hi"}])" + members + "}"), text_,
                     settings_, 5);
  }
  GenerateOptions drawn(const std::string& members) const {
    return completion(R"("prompt": "abc", )" + members).choices[0].text.generate;
  }
  ApiError refused(const std::string& members) const {
    return refusal([&] { completion(R"("prompt": "abc", )" + members); });
  }

  ModelText text_ = byte_text();
  ServerSettings settings_ = tiny_settings(text_);
};

TEST_F(RequestPlanTest, SamplingIsTheRequestsElseTheFlagsElseTheModelsElseOpenAis) {
  const auto temperature = [&](const std::string& members) { return drawn(members).sampling.temperature; };
  EXPECT_EQ(temperature(R"("n": 1)"), 1.0f);
  settings_.recommended.temperature = 0.6;
  EXPECT_EQ(temperature(R"("n": 1)"), 0.6f);
  settings_.flags.temperature = 0.7;
  EXPECT_EQ(temperature(R"("n": 1)"), 0.7f);
  EXPECT_EQ(temperature(R"("temperature": 0)"), 0.0f);
  EXPECT_EQ(temperature(R"("temperature": null)"), 0.7f);
}

TEST_F(RequestPlanTest, WithoutAnySayTheDefaultsAreOpenAis) {
  const SamplingOptions sampling = drawn(R"("n": 1)").sampling;
  EXPECT_EQ(sampling.temperature, 1.0f);
  EXPECT_EQ(sampling.top_p, 1.0f);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.min_p, 0.0f);
  EXPECT_EQ(sampling.presence_penalty, 0.0f);
  EXPECT_EQ(sampling.frequency_penalty, 0.0f);
  EXPECT_EQ(sampling.repeat_penalty, 1.0f);
  EXPECT_EQ(default_sampling(settings_).temperature, 1.0f);
}

TEST_F(RequestPlanTest, EverySamplingFieldArrives) {
  const SamplingOptions sampling = drawn(R"("temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1,
      "presence_penalty": 1, "frequency_penalty": -1, "repeat_penalty": 1.3, "logit_bias": {"9": -100})")
                                       .sampling;
  EXPECT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.1f);
  EXPECT_EQ(sampling.presence_penalty, 1.0f);
  EXPECT_EQ(sampling.frequency_penalty, -1.0f);
  EXPECT_EQ(sampling.repeat_penalty, 1.3f);
  EXPECT_EQ(sampling.logit_bias.at(9), -100.0f);
}

TEST_F(RequestPlanTest, ABiasedTextIsOneToken) {
  EXPECT_EQ(drawn(R"("logit_bias": [["a", 3]])").sampling.logit_bias.at('a' + 3), 3.0f);
  EXPECT_EQ(drawn(R"("logit_bias": [["<|im_end|>", 3]])").sampling.logit_bias.at(2), 3.0f);
  EXPECT_EQ(refused(R"("logit_bias": [[1, 1], ["ab", 3]])").message,
            "logit_bias[1]: expected a text that is one token, got one of 2");
  EXPECT_EQ(refused(R"("logit_bias": {"272": 3})").message,
            "logit_bias[\"272\"]: expected a token id from 0 to 271, got 272");
}

TEST_F(RequestPlanTest, ACompletionHas16TokensAndAChatWhatTheContextLeaves) {
  EXPECT_EQ(drawn(R"("n": 1)").max_tokens, 16);
  const RequestPlan plan = chat("");
  EXPECT_EQ(plan.choices[0].text.generate.max_tokens, 256 - std::ssize(plan.prompts[0].tokens) + 1);
  EXPECT_EQ(chat(R"(, "max_tokens": 5)").choices[0].text.generate.max_tokens, 5);
}

TEST_F(RequestPlanTest, MoreTokensThanAreLeftAreClamped) {
  EXPECT_EQ(drawn(R"("max_tokens": 254)").max_tokens, 254);  // the last one needs no position
  EXPECT_EQ(drawn(R"("max_tokens": 255)").max_tokens, 254);
  EXPECT_EQ(drawn(R"("max_tokens": 9223372036854775807)").max_tokens, 254);
}

TEST_F(RequestPlanTest, NoTokensAreOnlyAskedForWithAnEcho) {
  EXPECT_EQ(refused(R"("max_tokens": 0)").param, "max_tokens");
  EXPECT_EQ(drawn(R"("max_tokens": 0, "echo": true)").max_tokens, 0);
  EXPECT_EQ(refusal([&] { chat(R"(, "max_tokens": 0)"); }).status, 400);
}

TEST_F(RequestPlanTest, TheMinimumIsAtMostTheMaximum) {
  EXPECT_EQ(drawn(R"("min_tokens": 3)").min_tokens, 3);
  EXPECT_EQ(drawn(R"("min_tokens": 100)").min_tokens, 16);
  EXPECT_EQ(refused(R"("min_tokens": 6, "max_tokens": 5)").message, "min_tokens: expected 0 to max_tokens (5), got 6");
}

TEST_F(RequestPlanTest, ASeedIsTheRequestsElseTheFlagsElseFresh) {
  EXPECT_EQ(completion(R"("prompt": "a", "seed": -1)").seed, ~std::uint64_t{0});
  EXPECT_EQ(completion(R"("prompt": "a")").seed, (std::uint64_t{1} << 53) - 1);  // of what a double can hold
  settings_.seed = 42;
  EXPECT_EQ(completion(R"("prompt": "a")").seed, 42u);
  EXPECT_EQ(completion(R"("prompt": "a", "seed": 7)").seed, 7u);
}

TEST_F(RequestPlanTest, ChoicesHaveSeedsOfTheirOwnWhateverPromptTheyAreOf) {
  const RequestPlan plan = completion(R"("prompt": ["a", "bc"], "n": 3, "seed": 9)");
  ASSERT_EQ(plan.choices.size(), 6u);
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 6; ++i) {
    const PlannedChoice& choice = plan.choices[static_cast<std::size_t>(i)];
    EXPECT_EQ(choice.index, i);
    EXPECT_EQ(choice.prompt, i / 3);
    EXPECT_EQ(choice.text.generate.seed, choice_seed(9, i % 3));
    seeds.insert(choice.text.generate.seed);
  }
  EXPECT_EQ(seeds.size(), 3u);
  EXPECT_EQ(plan.choices[0].text.generate.seed, 9u);
  EXPECT_EQ(plan.form.choices(), 6);
}

// Answers can be had again with the seed that a response tells: it must not change with the program.
TEST_F(RequestPlanTest, TheHashOfASeedIsFixed) {
  EXPECT_EQ(choice_seed(0, 0), 0u);
  EXPECT_EQ(choice_seed(0, 1), 5153752633540653u);
  EXPECT_EQ(choice_seed(1234, 2), 5690027975944078u);
  EXPECT_EQ(choice_seed(~std::uint64_t{0}, 15), 5310619024371865u);
  for (int choice = 1; choice < 16; ++choice) EXPECT_LT(choice_seed(~std::uint64_t{0}, choice), std::uint64_t{1} << 53);
}

TEST_F(RequestPlanTest, StopsArriveAndIdsAreChecked) {
  const TextOptions options = completion(R"("prompt": "a", "stop": ["x"], "stop_token_ids": [5], "ignore_eos": true,
                    "include_stop_str_in_output": true)")
                                  .choices[0]
                                  .text;
  EXPECT_THAT(options.stop, ElementsAre("x"));
  EXPECT_THAT(options.generate.stop_tokens, ElementsAre(5));
  EXPECT_TRUE(options.ignore_eos);
  EXPECT_TRUE(options.include_stop);
  EXPECT_EQ(refused(R"("stop_token_ids": [5, 272])").param, "stop_token_ids[1]");
}

TEST_F(RequestPlanTest, LogProbabilitiesOfThePromptAreWantedWithAnEchoOnly) {
  EXPECT_EQ(drawn(R"("n": 1)").logprobs, -1);
  EXPECT_EQ(drawn(R"("logprobs": 3)").logprobs, 3);
  EXPECT_EQ(drawn(R"("logprobs": 3)").prompt_logprobs, -1);
  EXPECT_EQ(drawn(R"("logprobs": 3, "echo": true)").prompt_logprobs, 3);
  EXPECT_EQ(drawn(R"("echo": true)").prompt_logprobs, -1);
  EXPECT_EQ(chat(R"(, "logprobs": true)").choices[0].text.generate.logprobs, 0);
  EXPECT_EQ(chat(R"(, "logprobs": true, "top_logprobs": 2)").choices[0].text.generate.logprobs, 2);
}

TEST_F(RequestPlanTest, APromptIsScoredOnceForAllItsChoices) {
  const RequestPlan plan = completion(R"("prompt": ["a", "b"], "n": 2, "echo": true, "logprobs": 1)");
  std::vector<std::int64_t> wanted;
  for (const PlannedChoice& choice : plan.choices) wanted.push_back(choice.text.generate.prompt_logprobs);
  EXPECT_THAT(wanted, ElementsAre(1, -1, 1, -1));
}

TEST_F(RequestPlanTest, ARequestAsksForABoundedNumberOfAnswers) {
  const auto asked = [](int prompts, int n) {
    std::string list = "\"a\"";
    for (int i = 1; i < prompts; ++i) list += ", \"a\"";
    return "\"prompt\": [" + list + "], \"n\": " + std::to_string(n);
  };
  EXPECT_EQ(std::ssize(completion(asked(64, 2)).choices), kMostAnswers);
  const ApiError error = refusal([&] { completion(asked(43, 3)); });
  EXPECT_EQ(error.param, "n");
  EXPECT_EQ(error.message, "n: expected at most 128 answers to a request, got 43 prompts times 3");
}

TEST_F(RequestPlanTest, SpeculationIsOfWhatIsLoaded) {
  EXPECT_TRUE(completion(R"("prompt": "a")").draft.drafts);
  EXPECT_FALSE(completion(R"("prompt": "a", "speculation": false)").draft.drafts);
  const DraftCaps caps = completion(R"("prompt": "a", "speculation": {"draft": "ngram", "nodes": 8, "depth": 2,
                                       "tree": "chain"})")
                             .draft;
  EXPECT_THAT(caps.drafters, ElementsAre("ngram"));
  EXPECT_THAT(completion(R"("prompt": "a", "speculation": {"draft": "eagle"})").draft.drafters, ElementsAre("eagle3"))
      << "whichever generation is loaded";
  EXPECT_EQ(caps.nodes, 8);
  EXPECT_EQ(caps.depth, 2);
  EXPECT_EQ(caps.tree, TreeShape::chain);
  EXPECT_THAT(refused(R"("speculation": {"draft": "medusa"})").message,
              HasSubstr(R"(those loaded (eagle3, ngram), got "medusa")"));
  EXPECT_EQ(refused(R"("speculation": {"tree": "static"})").param, "speculation.tree");
  settings_.tree = TreeShape::fixed;
  EXPECT_EQ(completion(R"("prompt": "a", "speculation": {"tree": "static"})").draft.tree, TreeShape::fixed);
}

TEST_F(RequestPlanTest, APredictionBecomesTokens) {
  const RequestPlan plan = completion(R"("prompt": "a", "prediction": {"type": "content", "content": "xy"})");
  EXPECT_THAT(plan.prediction, ElementsAre('x' + 3, 'y' + 3));
  EXPECT_TRUE(plan.form.prediction);
  const std::string longer(1000, 'x');
  EXPECT_EQ(completion(R"("prompt": "a", "prediction": {"content": ")" + longer + "\"}").prediction.size(), 256u);
}

TEST_F(RequestPlanTest, AnyModelIsServedUnlessTheServerIsStrict) {
  EXPECT_NO_THROW(completion(R"("prompt": "a", "model": "gpt-4")"));
  settings_.strict_model = true;
  EXPECT_NO_THROW(completion(R"("prompt": "a", "model": "tiny")"));
  EXPECT_NO_THROW(completion(R"("prompt": "a")"));
  EXPECT_EQ(refused(R"("model": "gpt-4")").code, "model_not_found");
  EXPECT_EQ(refused(R"("model": "gpt-4")").status, 404);
}

TEST_F(RequestPlanTest, PrioritiesAreTheServersToAllow) {
  EXPECT_NO_THROW(completion(R"("prompt": "a", "priority": 0)"));
  EXPECT_EQ(refused(R"("priority": 1)").param, "priority");
  settings_.priorities = true;
  EXPECT_EQ(completion(R"("prompt": "a", "priority": -3)").priority, -3);
}

TEST_F(RequestPlanTest, ReceiptsNeedADeviceWhoseAnswersDependOnTheRequestAlone) {
  EXPECT_TRUE(completion(R"("prompt": "a", "receipt": true)").form.receipt);
  settings_.receipts = false;
  EXPECT_EQ(refused(R"("receipt": true)").param, "receipt");
}

TEST_F(RequestPlanTest, CacheAndSaltArrive) {
  const RequestPlan plan = completion(R"("prompt": "a", "cache_prompt": false, "cache_salt": "s")");
  EXPECT_FALSE(plan.cache);
  EXPECT_EQ(plan.salt, "s");
}

TEST_F(RequestPlanTest, UsageIsOnlyStreamed) {
  EXPECT_FALSE(completion(R"("prompt": "a", "stream_options": {"include_usage": true})").form.include_usage);
  const AnswerForm form =
      completion(R"("prompt": "a", "stream": true, "stream_options": {"include_usage": true})").form;
  EXPECT_TRUE(form.stream && form.include_usage);
  EXPECT_FALSE(form.continuous_usage);
  EXPECT_FALSE(completion(R"("prompt": "a", "stream": true,
                             "stream_options": {"continuous_usage_stats": true})")
                   .form.continuous_usage);
}

TEST_F(RequestPlanTest, APromptThatIsTooLongIsNamed) {
  const std::string longest(256, 'x');
  EXPECT_NO_THROW(completion("\"prompt\": \"" + longest + "\""));
  const ApiError error = refusal([&] { completion("\"prompt\": [\"a\", \"" + longest + "x\"]"); });
  EXPECT_EQ(error.type, ErrorType::exceed_context_size);
  EXPECT_EQ(error.param, "prompt[1]");
  EXPECT_EQ(error.n_prompt_tokens, 257);
  EXPECT_EQ(refusal([&] { completion(R"("prompt": "")"); }).message, "prompt: expected at least one token, got none");
}

TEST_F(RequestPlanTest, WhatLmEvaluationHarnessSendsIsPlanned) {
  const RequestPlan plan = completion(R"("model": "x", "prompt": [[10, 11, 12], [13, 14]], "temperature": 0,
                                         "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": true)");
  ASSERT_EQ(plan.choices.size(), 2u);
  EXPECT_EQ(plan.choices[1].text.generate.max_tokens, 1);
  EXPECT_EQ(plan.choices[1].text.generate.prompt_logprobs, 1);
  EXPECT_EQ(plan.choices[1].text.generate.sampling.temperature, 0.0f);
  EXPECT_THAT(plan.prompts[1].tokens, ElementsAre(13, 14));
  EXPECT_TRUE(plan.form.echo && plan.form.logprobs);
}

TEST_F(RequestPlanTest, TheFrameSaysWhoAnswersWhat) {
  const RequestPlan plan = completion(R"("prompt": "ab", "seed": 3)");
  const AnswerFrame frame = frame_of(plan, settings_, answer_id(Api::text, "7"), 99, "b00");
  EXPECT_EQ(frame.id, "cmpl-7");
  EXPECT_EQ(frame.model, "tiny");
  EXPECT_EQ(frame.seed, 3u);
  EXPECT_THAT(frame.prompts, ElementsAre(ElementsAre('a' + 3, 'b' + 3)));
}

}  // namespace
}  // namespace espalier
