#include "serve/protocol/text_endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/protocol/testing/refusal.h"
#include "serve/protocol/testing/tiny_server.h"

namespace espalier {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class TextEndpoints : public ::testing::Test {
 protected:
  json tokenized(const std::string& body) const {
    return json::parse(tokenize_response(parse_tokenize_request(body), text_, settings_));
  }
  json detokenized(const std::string& body) const {
    return json::parse(detokenize_response(parse_detokenize_request(body), text_, settings_));
  }

  ModelText text_ = byte_text();
  ServerSettings settings_ = tiny_settings(text_);
};

TEST_F(TextEndpoints, ContentBecomesTokens) {
  EXPECT_EQ(tokenized(R"({"content": "ab"})"),
            json::parse(R"({"tokens": [100, 101], "count": 2, "max_model_len": 256})"));
  EXPECT_EQ(tokenized(R"({"content": ""})")["count"], 0);
}

TEST_F(TextEndpoints, ControlTokensAreReadUnlessItSaysNo) {
  EXPECT_EQ(tokenized(R"({"content": "<|im_end|>"})")["count"], 1);
  EXPECT_GT(tokenized(R"({"content": "<|im_end|>", "parse_special": false})")["count"], 1);
}

TEST_F(TextEndpoints, PiecesThatAreNoUtf8AreBytes) {
  EXPECT_EQ(tokenized(R"({"content": "aé", "with_pieces": true})")["tokens"],
            json::parse(R"([{"id": 100, "piece": "a"}, {"id": 198, "piece": [195]}, {"id": 172, "piece": [169]}])"));
}

TEST_F(TextEndpoints, APromptHasBosAndContentHasNot) {
  text_ = bos_text();
  settings_ = tiny_settings(text_);
  const int bos = *text_.tokenizer->bos();
  EXPECT_EQ(tokenized(R"({"prompt": "Hello"})")["tokens"][0], bos);
  EXPECT_NE(tokenized(R"({"content": "Hello"})")["tokens"][0], bos);
  EXPECT_EQ(tokenized(R"({"content": "Hello", "add_special": true})")["tokens"][0], bos);
  EXPECT_NE(tokenized(R"({"prompt": "Hello", "add_special_tokens": false})")["tokens"][0], bos);
}

TEST_F(TextEndpoints, MessagesAreReadAsChatReadsThem) {
  const std::string body = R"({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": false})";
  const json tokens = tokenized(body)["tokens"];
  const json input = json::parse(input_tokens_response(parse_chat_prompt(body), text_, settings_));
  EXPECT_EQ(input["input_tokens"], tokens.size());
  const json shown = json::parse(apply_template_response(parse_chat_prompt(body), text_, settings_));
  EXPECT_THAT(shown["prompt"].get<std::string>(), HasSubstr("<|im_start|>user\nhi<|im_end|>\n"));
  EXPECT_EQ(detokenized(json{{"tokens", tokens}}.dump())["content"], shown["prompt"]);
}

// A client may take the prompt and send it to /v1/completions instead.
TEST_F(TextEndpoints, TheTemplatesTextAsARawPromptIsTheSameTokens) {
  const ChatPromptFields prompt = parse_chat_prompt(R"({"messages": [{"role": "user", "content": "hi"}]})");
  const json shown = json::parse(apply_template_response(prompt, text_, settings_));
  const CompletionRequest raw = parse_completion_request(shown.dump());
  EXPECT_EQ(plan_completion(raw, text_, settings_, 0).prompts[0].tokens.size(),
            json::parse(input_tokens_response(prompt, text_, settings_))["input_tokens"]);
}

TEST_F(TextEndpoints, ExactlyOneTextIsWanted) {
  EXPECT_EQ(refusal([] { parse_tokenize_request("{}"); }).status, 400);
  EXPECT_EQ(refusal([] { parse_tokenize_request(R"({"content": "a", "prompt": "b"})"); }).status, 400);
  EXPECT_THAT(refusal([] { parse_tokenize_request(R"({"content": 3})"); }).message,
              HasSubstr("content: expected a string"));
}

TEST_F(TextEndpoints, TokensBecomeTextUnderBothNames) {
  EXPECT_EQ(detokenized(R"({"tokens": [100, 198, 172, 2]})"),
            json::parse(R"({"content": "aé<|im_end|>", "prompt": "aé<|im_end|>"})"));
  EXPECT_EQ(detokenized(R"({"tokens": []})")["content"], "");
  EXPECT_EQ(detokenized(R"({"tokens": [198]})")["content"], "\uFFFD");
  EXPECT_EQ(refusal([&] { detokenized(R"({"tokens": [5, 272]})"); }).param, "tokens[1]");
  EXPECT_EQ(refusal([&] { detokenized("{}"); }).message, "tokens is missing");
}

TEST_F(TextEndpoints, ControlTokensAreToldAsTexts) {
  EXPECT_EQ(json::parse(tokenizer_info_response(text_, "{{ x }}")),
            json::parse(R"({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "add_bos_token": false,
                            "chat_template": "{{ x }}"})"));
  const json with_bos = json::parse(tokenizer_info_response(bos_text(), ""));
  EXPECT_EQ(with_bos["add_bos_token"], true);
  EXPECT_EQ(with_bos["bos_token"], "<s>");
  EXPECT_TRUE(with_bos["chat_template"].is_null());
}

TEST_F(TextEndpoints, CountingIsNotBoundByTheContext) {
  const std::string body = R"({"messages": [{"role": "user", "content": ")" + std::string(1000, 'x') + "\"}]}";
  EXPECT_GT(json::parse(input_tokens_response(parse_chat_prompt(body), text_, settings_))["input_tokens"], 1000);
}

}  // namespace
}  // namespace espalier
