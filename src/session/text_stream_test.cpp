#include "session/text_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "decode/oracle_drafter.h"
#include "device/cpu/cpu_device.h"
#include "text/utf8.h"

namespace espalier {
namespace {

// A tiny random model with a byte-level tokenizer: its answers are full of broken characters.
class TextStreamTest : public ::testing::Test {
 protected:
  std::filesystem::path path_ = std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/llama2.gguf";
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  Transformer model_ = load_transformer(*device_, path_);
  ModelText text_ = load_model_text(path_);
  KnownAnswers answers_;

  struct Heard {
    std::vector<TextPart> parts = {};
    std::vector<int> rounds = {};  // heard before each part
    TextResult result = {};

    std::string text() const {
      std::string joined;
      for (const TextPart& part : parts) joined += part.text;
      return joined;
    }
    std::vector<TextToken> tokens() const {
      std::vector<TextToken> joined;
      for (const TextPart& part : parts) joined.insert(joined.end(), part.tokens.begin(), part.tokens.end());
      return joined;
    }
  };

  static TextOptions tokens(std::int64_t count) {
    TextOptions options;
    options.generate.max_tokens = count;
    options.generate.logprobs = 1;
    options.ignore_eos = true;
    return options;
  }

  Batch batch(bool drafts = true) {
    if (!drafts) return Batch(model_, {.context = 256});
    return Batch(model_, {.context = 256},
                 {.tree = {.nodes = 8, .depth = 5}, .drafters = [this](KvCache&, int) {
                    DrafterSet set;
                    set.push_back(std::make_unique<OracleDrafter>(
                        &answers_, OracleOptions{.profile = {0.9}, .seed = 2, .vocabulary = 272}));
                    return set;
                  }});
  }

  Heard hear(const std::string& prompt, const TextOptions& options, bool drafts = true) {
    Heard heard;
    int rounds = 0;
    std::string said;
    TextEvents events{.on_text = [&](std::string_view part) { said += part; },
                      .on_part =
                          [&](const TextPart& part) {
                            EXPECT_FALSE(part.empty());
                            EXPECT_EQ(heard.text() + part.text, said) << "all that is known, and nothing else";
                            heard.parts.push_back(part);
                            heard.rounds.push_back(rounds);
                          },
                      .on_round = [&](const Round&) { ++rounds; }};
    TextStream stream(text_, encode_plain(text_, prompt), options, events);
    Batch made = batch(drafts);
    const GenerateResult generated = made.generate(stream.request());
    stream.finish();
    heard.result = stream.take(generated);
    EXPECT_EQ(heard.text(), heard.result.text);
    EXPECT_EQ(said, heard.result.text);
    return heard;
  }

  // What the tokens of an answer say, and the oracle learns it.
  std::string learn(const std::string& prompt, const TextOptions& options) {
    const Heard heard = hear(prompt, options, false);
    answers_ = {};
    answers_.learn(heard.result.prompt, heard.result.generated.tokens);
    return heard.result.text;
  }

  static void expect_tokens_carry_the_text(const Heard& heard) {
    std::string bytes;
    const std::vector<TextToken> tokens = heard.tokens();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_EQ(tokens[i].id, heard.result.generated.tokens[i]) << "no token is lost, none comes too early";
      ASSERT_TRUE(tokens[i].logprobs.has_value());
      EXPECT_EQ(tokens[i].logprobs->chosen.token, tokens[i].id);
      EXPECT_EQ(tokens[i].logprobs->chosen.logprob, heard.result.logprobs[i].chosen.logprob);
      EXPECT_LE(tokens[i].offset, std::ssize(heard.result.text));
      bytes += tokens[i].bytes;
    }
    std::string repaired = take_characters(bytes);
    if (!bytes.empty()) repaired += kReplacementCharacter;
    EXPECT_TRUE(repaired.starts_with(heard.result.text)) << "a token may go on behind a cut";
  }
};

TEST_F(TextStreamTest, EachRoundIsOnePartWithItsTokens) {
  const std::string whole = learn("once upon", tokens(60));
  const Heard heard = hear("once upon", tokens(60));
  EXPECT_EQ(heard.text(), whole);
  EXPECT_EQ(heard.tokens().size(), 60u);
  expect_tokens_carry_the_text(heard);
  const std::int64_t rounds = heard.result.generated.rounds();
  EXPECT_LT(rounds, 30) << "several tokens a round";
  EXPECT_LE(std::ssize(heard.parts), rounds + 1);
  for (std::size_t i = 1; i < heard.rounds.size(); ++i) EXPECT_GT(heard.rounds[i], heard.rounds[i - 1]);
}

TEST_F(TextStreamTest, ATokenComesWithTheLastOfItsText) {
  const Heard heard = hear("once upon", tokens(60), false);
  std::string said;
  std::int64_t late = 0;
  std::size_t told = 0;
  for (std::size_t i = 0; i < heard.parts.size(); ++i) {
    said += heard.parts[i].text;
    for (const TextToken& token : heard.parts[i].tokens) {
      EXPECT_LE(token.offset, std::ssize(said));
      if (heard.rounds[i] > static_cast<int>(told++)) ++late;
    }
  }
  EXPECT_EQ(told, 60u);
  EXPECT_GT(late, 0) << "some begin characters that later ones complete";
}

TEST_F(TextStreamTest, TokensInAndBehindAStopStringAreLeftOutWithTheirText) {
  const std::string whole = learn("once upon", tokens(60));
  int met = 0;
  for (std::size_t at = 0; at + 4 < whole.size(); ++at) {
    for (std::size_t length : {1u, 3u, 4u}) {
      TextOptions options = tokens(60);
      options.stop = {whole.substr(at, length)};
      if (first_invalid_utf8(options.stop[0])) continue;
      const std::size_t cut = whole.find(options.stop[0]);
      for (bool include : {false, true}) {
        options.include_stop = include;
        const Heard heard = hear("once upon", options);
        EXPECT_EQ(heard.result.text, whole.substr(0, cut + (include ? length : 0)));
        EXPECT_EQ(heard.result.stop_string, options.stop[0]);
        EXPECT_EQ(heard.result.stop_token, std::nullopt);
        EXPECT_EQ(heard.result.generated.finish_reason, FinishReason::stopped);
        expect_tokens_carry_the_text(heard);
        for (const TextToken& token : heard.tokens())
          EXPECT_TRUE(token.bytes.empty() || token.offset < std::ssize(heard.result.text)) << "it has no byte of it";
        ++met;
      }
    }
  }
  EXPECT_GT(met, 60);
}

TEST_F(TextStreamTest, TheStopTokenIsToldLastAndIsNoText) {
  const Heard whole = hear("once upon", tokens(30), false);
  TextOptions options = tokens(30);
  options.generate.stop_tokens = {whole.result.generated.tokens[7]};
  const Heard heard = hear("once upon", options);
  const std::vector<TextToken> all = heard.tokens();
  EXPECT_EQ(heard.result.generated.finish_reason, FinishReason::stop_token);
  EXPECT_EQ(heard.result.stop_token, options.generate.stop_tokens[0]);
  EXPECT_EQ(heard.result.stop_string, std::nullopt);
  ASSERT_EQ(all.size(), heard.result.generated.tokens.size());
  EXPECT_TRUE(all.back().stops);
  EXPECT_TRUE(all.back().bytes.empty());
  EXPECT_TRUE(all.back().logprobs.has_value());
  for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_FALSE(all[i].stops);
  expect_tokens_carry_the_text(heard);
}

TEST_F(TextStreamTest, WhatWasHeldBackIsSaidInTheLastRound) {
  const std::string whole = learn("once upon", tokens(40));
  TextOptions options = tokens(40);
  options.stop = {whole.substr(whole.size() - 2) + "never"};
  const Heard heard = hear("once upon", options);
  EXPECT_EQ(heard.result.text, whole);
  EXPECT_EQ(heard.rounds.back(), heard.result.generated.rounds()) << "not behind it";
  EXPECT_EQ(heard.tokens().size(), 40u);
  EXPECT_EQ(heard.result.stop_string, std::nullopt);
}

TEST_F(TextStreamTest, NoStopStringEndsAnAnswerBeforeItsLeastLength) {
  const Heard whole = hear("once upon", tokens(60), false);
  const std::vector<TextToken> all = whole.tokens();
  TextOptions options = tokens(60);
  // A piece of text that comes again and again.
  std::map<std::string, int> counts;
  for (const TextToken& token : all)
    if (!token.bytes.empty() && !first_invalid_utf8(token.bytes)) ++counts[token.bytes];
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  ASSERT_GT(most->second, 2);
  options.stop = {most->first};
  std::size_t before = 0;
  for (std::int64_t least : {0, 1, 10, 20, 40}) {
    options.generate.min_tokens = least;
    const Heard heard = hear("once upon", options);
    const std::size_t count = heard.result.generated.tokens.size();
    EXPECT_GE(static_cast<std::int64_t>(count), least);
    EXPECT_GE(count, before);
    before = count;
    EXPECT_TRUE(whole.result.text.starts_with(heard.result.text));
    EXPECT_TRUE(!heard.result.stop_string || static_cast<std::int64_t>(count) > least) << "the next one may";
    expect_tokens_carry_the_text(heard);
  }
  EXPECT_GT(before, 30u);
}

TEST_F(TextStreamTest, FinishingTwiceSaysNothingTwice) {
  std::string said;
  int parts = 0;
  TextStream stream(
      text_, encode_plain(text_, "once upon"), tokens(9),
      {.on_text = [&](std::string_view part) { said += part; }, .on_part = [&](const TextPart&) { ++parts; }});
  Batch made = batch(false);
  const GenerateResult generated = made.generate(stream.request());
  stream.finish();
  const int before = parts;
  stream.finish();
  EXPECT_EQ(parts, before);
  EXPECT_EQ(stream.take(generated).text, said);
}

// An answer whose caller loses interest has told what it has said, and says the rest when it is finished.
TEST_F(TextStreamTest, ACancelledAnswerKeepsTokensAndTextTogether) {
  for (std::int64_t most : {1, 5, 17}) {
    Heard heard;
    std::int64_t asked = 0;
    TextEvents events{.on_part = [&](const TextPart& part) { heard.parts.push_back(part); },
                      .cancelled = [&] { return ++asked > most; }};
    TextStream stream(text_, encode_plain(text_, "once upon"), tokens(60), events);
    Batch made = batch(false);
    const GenerateResult generated = made.generate(stream.request());
    stream.finish();
    heard.result = stream.take(generated);
    EXPECT_EQ(heard.result.generated.finish_reason, FinishReason::cancelled);
    EXPECT_EQ(heard.text(), heard.result.text);
    EXPECT_EQ(heard.tokens().size(), heard.result.generated.tokens.size());
    expect_tokens_carry_the_text(heard);
  }
}

// SentencePiece has a space in front of the first word of a text, which is not one of an answer that continues it.
TEST(TextStreamBehindAPrompt, BothTextsJoinedAreThatOfAllTokens) {
  for (const char* name : {"llama2", "mistral", "pangu", "llama3"}) {
    SCOPED_TRACE(name);
    const ModelText text = load_model_text(std::filesystem::path(ESPALIER_TEST_DATA) / "tokenizers" / name);
    const Tokenizer& tokenizer = *text.tokenizer;
    std::vector<TokenId> all = tokenizer.encode("the capital of France is  Paris.\nSo it is");
    if (tokenizer.bos()) all.insert(all.begin(), *tokenizer.bos());
    for (std::size_t split = 1; split < all.size(); ++split) {
      const std::vector<TokenId> prompt(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(split));
      TextOptions options;
      options.ignore_eos = true;
      std::string bytes;
      TextStream stream(text, prompt, options, {.on_part = [&](const TextPart& part) {
                          for (const TextToken& token : part.tokens) {
                            bytes += token.bytes;
                            EXPECT_EQ(token.bytes, tokenizer.bytes(token.id, token.first));
                          }
                        }});
      const GenerateRequest request = stream.request();
      for (std::size_t i = split; i < all.size(); ++i) {
        GeneratedToken token;
        token.token = all[i];
        request.events.on_token(token);
      }
      stream.finish();
      const std::string answer = stream.take({}).text;
      EXPECT_EQ(tokenizer.decode(prompt, true) + answer, tokenizer.decode(all, true)) << split;
      EXPECT_EQ(bytes, answer) << split;
    }
  }
}

}  // namespace
}  // namespace espalier
