// The default model's vocabulary, read from its GGUF file.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "format/gguf.h"
#include "text/testing/tokenizer_fixture.h"
#include "text/tokenizer.h"

namespace espalier {
namespace {

class SmolLM2Tokenizer : public testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path path = std::filesystem::path(ESPALIER_MODELS) / "SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there; make model fetches it";
    const Gguf gguf(path);
    const auto start = std::chrono::steady_clock::now();
    tokenizer_ = load_tokenizer(gguf);
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    RecordProperty("load_ms", std::to_string(elapsed.count()));
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(SmolLM2Tokenizer, IdsAreThoseOfHuggingFaceOnEveryString) {
  EXPECT_EQ(differences_to("smollm2", *tokenizer_), "");
}

TEST_F(SmolLM2Tokenizer, EveryStringItCanSpellComesBack) {
  // The vocabulary has no tokens for these bytes; Hugging Face leaves them out too.
  constexpr std::string_view kUnspellable =
      "\x04\x06\x13\x14\x16\x1D\xC0\xC1\xF1\xF2\xF5\xF6\xF7\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF";
  std::size_t spelled = 0;
  for (const std::string& text : tokenizer_strings()) {
    if (text.find_first_of(kUnspellable) != std::string::npos) continue;
    ++spelled;
    ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text, true)), text);
    ASSERT_EQ(tokenizer_->decode(tokenizer_->encode(text, false)), text);
  }
  EXPECT_GT(spelled, 20'000u);
}

TEST_F(SmolLM2Tokenizer, ControlTokensAreKnownByName) {
  EXPECT_EQ(tokenizer_->find_special("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer_->bos(), 1);
  EXPECT_EQ(tokenizer_->eos(), 2);
  EXPECT_FALSE(tokenizer_->add_bos());
  EXPECT_EQ(tokenizer_->vocabulary_size(), 49152);
}

}  // namespace
}  // namespace espalier
