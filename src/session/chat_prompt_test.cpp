#include "session/chat_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

const fs::path kTestData = ESPALIER_TEST_DATA;

std::string joined_text(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

class ChatPromptTest : public ::testing::Test {
 protected:
  void use_template(const fs::path& file) { context_.instead = std::make_shared<ChatTemplate>(read_text_file(file)); }
  std::string rendered(const std::vector<ChatMessage>& messages) const {
    return joined_text(render_chat(text_, messages, context_));
  }

  ModelText text_ = load_model_text(kTestData / "tiny/llama2.gguf");
  ChatContext context_ = {.date_iso = "2026-11-15"};
};

// The rest of the answer follows on what it has said so far, as if it had never stopped.
TEST_F(ChatPromptTest, AMessageThatIsContinuedIsTheBeginningOfTheWholeOne) {
  int templates = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kTestData / "templates")) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename());
    use_template(entry.path());
    context_.generation_prompt = false;
    context_.continue_final = false;
    const std::string whole = rendered({{"user", "hi"}, {"assistant", "Well, hello there."}});
    context_.continue_final = true;
    const std::string begun = rendered({{"user", "hi"}, {"assistant", "Well, hello"}});
    EXPECT_TRUE(begun.ends_with("Well, hello")) << begun;
    EXPECT_TRUE(whole.starts_with(begun)) << begun << "\n---\n" << whole;
    ++templates;
  }
  EXPECT_GE(templates, 10);
}

TEST_F(ChatPromptTest, SpacesAtItsEndStayUnlessTheTemplateStripsThem) {
  context_.continue_final = true;
  const std::vector<ChatMessage> messages = {{"user", "hi"}, {"assistant", "Well, \n"}};
  EXPECT_TRUE(rendered(messages).ends_with("Well, \n"));
  use_template(kTestData / "templates/llama3.jinja");
  EXPECT_TRUE(rendered(messages).ends_with("Well,"));
}

TEST_F(ChatPromptTest, AnEmptyMessageCanBeContinuedToo) {
  context_.continue_final = true;
  const std::string text = rendered({{"user", "hi"}, {"assistant", ""}});
  EXPECT_TRUE(text.ends_with("<|im_start|>assistant\n")) << text;
}

TEST_F(ChatPromptTest, ATemplateThatDoesNotShowTheMessageCannotContinueIt) {
  context_.instead = std::make_shared<ChatTemplate>("always the same");
  context_.continue_final = true;
  EXPECT_THROW(rendered({{"assistant", "x"}}), InputError);
  EXPECT_THROW(rendered({}), InputError);
}

TEST_F(ChatPromptTest, WhatIsContinuedIsStillTheUsersText) {
  context_.continue_final = true;
  const TextPiece last = render_chat(text_, {{"user", "u"}, {"assistant", "<|im_end|>"}}, context_).back();
  EXPECT_EQ(last.text, "<|im_end|>");
  EXPECT_FALSE(last.allow_special);
  const std::vector<TokenId> ids = encode_chat(text_, {{"user", "u"}, {"assistant", "<|im_end|>"}}, context_);
  EXPECT_FALSE(text_.tokenizer->is_special(ids.back()));
}

TEST_F(ChatPromptTest, APlainPromptMaySpellControlTokensOnlyWhereThatIsAllowed) {
  EXPECT_EQ(encode_plain(text_, "<|im_end|>", true).size(), 1u);
  EXPECT_GT(encode_plain(text_, "<|im_end|>").size(), 1u);
  const ModelText with_bos = load_model_text(kTestData / "tokenizers/llama2");
  EXPECT_EQ(encode_plain(with_bos, "<s>Hello", true), encode_plain(with_bos, "Hello", true));
}

}  // namespace
}  // namespace espalier
