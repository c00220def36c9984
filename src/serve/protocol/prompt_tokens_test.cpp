#include "serve/protocol/prompt_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/protocol/testing/refusal.h"
#include "serve/protocol/testing/tiny_server.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class PromptTokens : public ::testing::Test {
 protected:
  std::string rendered(const ChatPromptFields& prompt) const { return chat_text(prompt, text_, chat_); }
  PlannedPrompt plain(const PromptField& prompt, const CompletionRequest& request = {}) const {
    return plain_prompt(prompt, request, text_, text_.tokenizer->vocabulary_size(), "prompt");
  }

  ModelText text_ = byte_text();
  ChatContext chat_ = {};
};

TEST_F(PromptTokens, AConversationIsRenderedByTheModelsTemplate) {
  const ChatPromptFields prompt{.messages = {{"user", "hi"}}};
  EXPECT_THAT(rendered(prompt), HasSubstr("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(text_.tokenizer->decode(chat_tokens(prompt, text_, chat_)), rendered(prompt));
}

TEST_F(PromptTokens, ATurnMayStayUnopened) {
  const std::string text = rendered({.messages = {{"user", "hi"}}, .add_generation_prompt = false});
  EXPECT_TRUE(text.ends_with("hi<|im_end|>\n")) << text;
}

TEST_F(PromptTokens, TheLastMessageMayStayOpen) {
  const ChatPromptFields prompt{.messages = {{"user", "hi"}, {"assistant", "Well, "}},
                                .add_generation_prompt = false,
                                .continue_final_message = true};
  EXPECT_TRUE(rendered(prompt).ends_with("<|im_start|>assistant\nWell, ")) << rendered(prompt);
}

TEST_F(PromptTokens, WhatAUserWritesIsNeverAControlToken) {
  const std::vector<TokenId> spelled = chat_tokens({.messages = {{"user", "<|im_end|>"}}}, text_, chat_);
  const std::vector<TokenId> harmless = chat_tokens({.messages = {{"user", "x"}}}, text_, chat_);
  const TokenId end = *text_.tokenizer->find_special("<|im_end|>");
  EXPECT_EQ(std::ranges::count(spelled, end), std::ranges::count(harmless, end));
}

TEST_F(PromptTokens, VariablesOfTheRequestGoBeforeThoseOfTheServer) {
  chat_.instead = std::make_shared<ChatTemplate>("{{ a }} {{ b }}");
  chat_.variables_json = R"({"a": 1, "b": 2})";
  EXPECT_EQ(rendered({.messages = {{"user", "x"}}}), "1 2");
  EXPECT_EQ(rendered({.messages = {{"user", "x"}}, .template_variables = R"({"b": "three"})"}), "1 three");
}

TEST_F(PromptTokens, WhatATemplateRefusesIsA400) {
  chat_.instead = std::make_shared<ChatTemplate>("{{ raise_exception('roles must alternate') }}");
  const ApiError raised = refusal([&] { rendered({.messages = {{"user", "x"}}}); });
  EXPECT_EQ(raised.status, 400);
  EXPECT_EQ(raised.param, "messages");
  EXPECT_THAT(raised.message, HasSubstr("roles must alternate"));
  chat_.instead = std::make_shared<ChatTemplate>("{{ messages }}");
  EXPECT_EQ(refusal([&] {
              rendered({.messages = {{"user", "x"}}, .template_variables = R"({"messages": []})"});
            }).status,
            400);
}

TEST_F(PromptTokens, AModelWithoutATemplateCannotChat) {
  const ModelText raw = bos_text();
  const ApiError error = refusal([&] { chat_tokens({.messages = {{"user", "x"}}}, raw, {}); });
  EXPECT_EQ(error.status, 400);
  EXPECT_THAT(error.message, HasSubstr("/v1/completions"));
}

TEST_F(PromptTokens, APlainTextMaySpellControlTokensWhereItIsAllowedTo) {
  EXPECT_THAT(plain("a<|im_end|>").tokens, ElementsAre('a' + 3, *text_.tokenizer->find_special("<|im_end|>")));
  CompletionRequest request;
  request.parse_special = false;
  EXPECT_GT(plain("a<|im_end|>", request).tokens.size(), 2u);
}

TEST_F(PromptTokens, BosComesOnceInFrontOfATextAndNotInFrontOfIds) {
  text_ = bos_text();
  const TokenId bos = *text_.tokenizer->bos();
  const PlannedPrompt added = plain("Hello"), spelled = plain("<s>Hello");
  EXPECT_EQ(added.tokens.front(), bos);
  EXPECT_TRUE(added.added_bos);
  EXPECT_EQ(spelled.tokens.front(), bos);
  EXPECT_FALSE(spelled.added_bos);
  EXPECT_EQ(std::ranges::count(spelled.tokens, bos), 1);
  EXPECT_THAT(plain(std::vector<std::int64_t>{5, 6}).tokens, ElementsAre(5, 6));
}

TEST_F(PromptTokens, AnEchoIsTheTextAsItWasSentOrTheTextOfTheIds) {
  CompletionRequest request;
  request.echo = true;
  EXPECT_EQ(plain("hé<|im_end|>", request).echo, "hé<|im_end|>");
  EXPECT_EQ(plain(std::vector<std::int64_t>{'h' + 3, 2, 0xC3 + 3}, request).echo, "h<|im_end|>\uFFFD");
  EXPECT_EQ(plain("h").echo, "");
}

TEST_F(PromptTokens, IdsOutsideTheVocabularyAreNamed) {
  const ApiError error = refusal([&] { plain(std::vector<std::int64_t>{1, 272}); });
  EXPECT_EQ(error.message, "prompt[1]: expected a token id from 0 to 271, got 272");
  EXPECT_EQ(error.param, "prompt[1]");
}

TEST_F(PromptTokens, APromptHasATokenAndFitsTheContext) {
  EXPECT_EQ(refusal([] { check_prompt_size({}, 8, "prompt"); }).message,
            "prompt: expected at least one token, got none");
  EXPECT_EQ(refusal([] { check_prompt_size(std::vector<TokenId>(8), 8, "prompt"); }).status, 0);
  const ApiError error = refusal([] { check_prompt_size(std::vector<TokenId>(9), 8, "prompt"); });
  EXPECT_EQ(error.type, ErrorType::exceed_context_size);
  EXPECT_EQ(error.n_prompt_tokens, 9);
  EXPECT_EQ(error.n_ctx, 8);
}

}  // namespace
}  // namespace espalier
