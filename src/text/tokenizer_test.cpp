// What every tokenizer promises, on real vocabularies; directories and GGUF files.
#include "text/tokenizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>

#include "base/mapped_file.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"
#include "format/testing/temporary_folder.h"
#include "text/detokenizer.h"
#include "text/testing/tokenizer_fixture.h"
#include "text/utf8.h"

namespace espalier {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

std::unique_ptr<const Tokenizer> fixture(std::string_view name) {
  return load_tokenizer(tokenizer_folder(name));
}

// -- GGUF files made from the fixtures

// The vocabulary of a fixture as the metadata of a gpt2 GGUF file.
GgufBuilder gpt2_gguf(std::string_view fixture_name, std::string_view pre) {
  const Json document = Json::parse(read_text_file(tokenizer_folder(fixture_name) / "tokenizer.json"));
  const Json& model = document["model"];
  std::size_t count = model["vocab"].size();
  for (const Json& added : document["added_tokens"]) count += model["vocab"].contains(added["content"]) ? 0 : 1;
  std::vector<std::string> tokens(count);
  std::vector<std::int32_t> types(count, 1);
  for (const auto& [token, id] : model["vocab"].items()) tokens[id.get<std::size_t>()] = token;
  for (const Json& added : document["added_tokens"]) {
    tokens[added["id"].get<std::size_t>()] = added["content"];
    types[added["id"].get<std::size_t>()] = added["special"].get<bool>() ? 3 : 4;
  }
  std::vector<std::string> merges;
  for (const Json& merge : model["merges"]) {
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  GgufBuilder builder;
  builder.set("tokenizer.ggml.model", std::string("gpt2"))
      .set("tokenizer.ggml.pre", std::string(pre))
      .set("tokenizer.ggml.tokens", tokens)
      .set("tokenizer.ggml.token_type", types)
      .set("tokenizer.ggml.merges", merges);
  return builder;
}

struct SmallLlama {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "\u2581ab", "ab", "<go>"};
  std::vector<float> scores = {0, 0, 0, -9, -9, -9, -3, -2, -1, 0};
  std::vector<std::int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 4};

  SmallLlama() {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      scores.push_back(0);
      types.push_back(6);
    }
  }

  GgufBuilder builder() const {
    GgufBuilder result;
    result.set("tokenizer.ggml.model", std::string("llama"))
        .set("tokenizer.ggml.tokens", tokens)
        .set("tokenizer.ggml.scores", scores)
        .set("tokenizer.ggml.token_type", types)
        .set("tokenizer.ggml.bos_token_id", 1u)
        .set("tokenizer.ggml.eos_token_id", 2u);
    return result;
  }
};

std::unique_ptr<const Tokenizer> load_gguf(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  builder.write(folder / "model.gguf");
  return load_tokenizer(Gguf(folder / "model.gguf"));
}

TEST(GgufTokenizer, EveryPreTokenizerGivesTheIdsOfHuggingFace) {
  EXPECT_EQ(differences_to("gpt2", *load_gguf(gpt2_gguf("gpt2", "gpt-2"))), "");
  EXPECT_EQ(differences_to("llama3", *load_gguf(gpt2_gguf("llama3", "llama-bpe"))), "");
  EXPECT_EQ(differences_to("qwen2", *load_gguf(gpt2_gguf("qwen2", "qwen2"))), "");
  EXPECT_EQ(differences_to("tekken", *load_gguf(gpt2_gguf("tekken", "tekken"))), "");
}

TEST(GgufTokenizer, BosIsAddedWhereTheFileOrThePreTokenizerSaysSo) {
  GgufBuilder llama3 = gpt2_gguf("llama3", "llama-bpe");
  llama3.set("tokenizer.ggml.bos_token_id", 7u);
  EXPECT_TRUE(load_gguf(llama3)->add_bos());
  llama3.set("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(load_gguf(llama3)->add_bos());
  GgufBuilder qwen2 = gpt2_gguf("qwen2", "qwen2");
  qwen2.set("tokenizer.ggml.bos_token_id", 7u);
  EXPECT_FALSE(load_gguf(qwen2)->add_bos());
  EXPECT_TRUE(load_gguf(SmallLlama().builder())->add_bos());
}

TEST(GgufTokenizer, ALlamaVocabularyIsSentencePiece) {
  const auto tokenizer = load_gguf(SmallLlama().builder());
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(7));
  EXPECT_THAT(tokenizer->encode("a"), ElementsAre(6));
  EXPECT_THAT(tokenizer->encode("\n"), ElementsAre(3, 10 + 0x0A));
  EXPECT_THAT(tokenizer->encode("a<s>ab", true), ElementsAre(6, 1, 7));
  EXPECT_THAT(tokenizer->encode("a<go>ab", false), ElementsAre(6, 9, 8)) << "user-defined, inside one segment";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" a<s> ab\u2581 \u00e9<go>", true)), " a<s> ab\u2581 \u00e9<go>");
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(9));
}

TEST(GgufTokenizer, AddSpacePrefixIsHonoured) {
  GgufBuilder builder = SmallLlama().builder();
  builder.set("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = load_gguf(builder);
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(8));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" ab")), " ab");
}

TEST(BadGgufTokenizer, EveryLieIsNamed) {
  const auto without = [](std::string_view key) {
    GgufBuilder builder;
    if (key != "model") builder.set("tokenizer.ggml.model", std::string("gpt2"));
    if (key != "pre") builder.set("tokenizer.ggml.pre", std::string("gpt-2"));
    if (key != "tokens") builder.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    if (key != "token_type") builder.set("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1});
    if (key != "merges") builder.set("tokenizer.ggml.merges", std::vector<std::string>{});
    return complaint([&] { load_gguf(builder); });
  };
  EXPECT_EQ(without("nothing"), "");
  for (const std::string key : {"model", "pre", "tokens", "token_type", "merges"}) {
    EXPECT_THAT(without(key), HasSubstr("tokenizer.ggml." + key + " is missing"));
  }
}

TEST(BadGgufTokenizer, ValuesThatCannotBe) {
  const auto with = [](std::string_view key, const auto& value) {
    GgufBuilder builder;
    const auto set = [&](std::string_view name, const auto& good) {
      if (name != key) builder.set(name, good);
    };
    set("tokenizer.ggml.model", std::string("gpt2"));
    set("tokenizer.ggml.pre", std::string("gpt-2"));
    set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    set("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1});
    set("tokenizer.ggml.merges", std::vector<std::string>{});
    builder.set(key, value);
    return complaint([&] { load_gguf(builder); });
  };
  EXPECT_THAT(with("tokenizer.ggml.model", std::string("bert")), HasSubstr("expected \"gpt2\" or \"llama\", got"));
  EXPECT_THAT(with("tokenizer.ggml.pre", std::string("falcon")), HasSubstr("unknown pre-tokenizer \"falcon\", known"));
  EXPECT_THAT(with("tokenizer.ggml.tokens", std::vector<std::string>{"a", "a"}), HasSubstr("tokens 0 and 1 are both"));
  EXPECT_THAT(with("tokenizer.ggml.token_type", std::vector<std::int32_t>{1}), HasSubstr("expected 2 entries"));
  EXPECT_THAT(with("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 9}), HasSubstr("expected 1 to 6, got 9"));
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::string>{"ab"}), HasSubstr("expected \"left right\""));
  EXPECT_THAT(with("tokenizer.ggml.merges", std::vector<std::string>{"a b"}), HasSubstr("is not a token"));
  EXPECT_THAT(with("tokenizer.ggml.eos_token_id", 2u), HasSubstr("eos_token_id: expected 0 to 1, got 2"));
}

TEST(BadGgufTokenizer, ALlamaVocabularyThatSentencePieceRefuses) {
  SmallLlama twice;
  twice.tokens[4] = "b";
  EXPECT_THAT(complaint([&] { load_gguf(twice.builder()); }), HasSubstr("SentencePiece refuses the model"));
  SmallLlama no_unknown;
  no_unknown.types[0] = 3;
  EXPECT_THAT(complaint([&] { load_gguf(no_unknown.builder()); }), HasSubstr("SentencePiece refuses the model"));
  SmallLlama few_bytes;
  few_bytes.types[20] = 1;
  EXPECT_THAT(complaint([&] { load_gguf(few_bytes.builder()); }), HasSubstr("SentencePiece refuses the model"));
  SmallLlama scores;
  scores.scores.pop_back();
  EXPECT_THAT(complaint([&] { load_gguf(scores.builder()); }),
              HasSubstr("tokenizer.ggml.scores: expected 266 entries"));
}

// -- directories

TEST(TokenizerDirectory, WithoutATokenizerSaysWhatItLookedFor) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint([&] { load_tokenizer(folder.path()); }),
              HasSubstr("expected tokenizer.json or tokenizer.model"));
}

TEST(TokenizerDirectory, BosAndEosComeFromTheFiles) {
  EXPECT_EQ(fixture("llama3")->eos(), fixture("llama3")->find_special("<|eot_id|>"));
  EXPECT_TRUE(fixture("llama3")->add_bos());
  EXPECT_EQ(fixture("qwen2")->bos(), std::nullopt);
  EXPECT_FALSE(fixture("qwen2")->add_bos());
  EXPECT_EQ(fixture("llama2")->bos(), 1);
  EXPECT_TRUE(fixture("llama2")->add_bos());
  EXPECT_EQ(fixture("pangu")->eos(), fixture("pangu")->find_special("[unused10]"));
  EXPECT_TRUE(fixture("pangu")->add_bos());
}

// -- promises

TEST(Tokenizer, WhatAUserTypesNeverBecomesAControlToken) {
  for (const std::string name : {"gpt2", "llama3", "qwen2", "tekken", "llama2", "mistral", "pangu"}) {
    const auto tokenizer = fixture(name);
    for (TokenId control = 0; control < tokenizer->vocabulary_size(); ++control) {
      if (!tokenizer->is_special(control)) continue;
      const std::string spelling = tokenizer->bytes(control, false);
      EXPECT_THAT(tokenizer->encode(spelling, true), ElementsAre(control)) << name << " " << spelling;
      EXPECT_THAT(tokenizer->encode("x " + spelling + "y", false), Not(Contains(control))) << name << " " << spelling;
      const TextPiece pieces[] = {{spelling.substr(0, 1), true}, {spelling.substr(1), false}, {spelling, true}};
      const std::vector<TokenId> ids = tokenizer->encode(pieces);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), control), 1) << name << " " << spelling;
    }
  }
}

TEST(Tokenizer, PiecesAreReadAsOneText) {
  const auto tokenizer = fixture("llama3");
  const std::string text = "Hello there, it's <|eot_id|> fine \u4f60\u597d";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    if (first_invalid_utf8(text.substr(0, cut))) continue;
    const TextPiece pieces[] = {{text.substr(0, cut), true}, {text.substr(cut), true}};
    EXPECT_EQ(tokenizer->encode(pieces), tokenizer->encode(text, true));
  }
}

TEST(Tokenizer, ACharacterMayCrossPieces) {
  const TextPiece pieces[] = {{"\xC3", false}, {"\xA9", false}};
  EXPECT_EQ(fixture("gpt2")->encode(pieces), fixture("gpt2")->encode("\u00e9"));
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  EXPECT_EQ(complaint([] { fixture("gpt2")->encode("abc\xFF"); }), "text: not valid UTF-8 at byte 3 (0xff)");
  EXPECT_EQ(complaint([] { fixture("pangu")->encode("\xC3"); }), "text: not valid UTF-8 at byte 0 (0xc3)");
}

TEST(Tokenizer, ANegativeIdIsOurMistakeAndOneBeyondTheVocabularyHasNoText) {
  for (const char* name : {"gpt2", "pangu"}) {
    const auto tokenizer = fixture(name);
    EXPECT_THROW(tokenizer->bytes(-1, false), std::logic_error);
    const TokenId padding = tokenizer->vocabulary_size();
    EXPECT_EQ(tokenizer->bytes(padding, false), "");
    EXPECT_FALSE(tokenizer->is_special(padding));
    std::vector<TokenId> ids = tokenizer->encode("pear tree");
    ids.insert(ids.begin() + 1, padding);
    EXPECT_EQ(tokenizer->decode(ids), "pear tree");
  }
}

TEST(Tokenizer, ALongTextIsNotQuadratic) {
  std::string text;
  while (text.size() < 200'000) text += "wordswithoutanyspacebetween\u00e9";
  for (const std::string name : {"gpt2", "llama2", "pangu"}) {
    const auto tokenizer = fixture(name);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << name;
  }
}

// -- streaming

TEST(Detokenizer, StreamedPartsAreWholeCharactersAndJoinToTheDecodedText) {
  for (const std::string name : {"gpt2", "qwen2", "llama2", "mistral", "pangu"}) {
    const auto tokenizer = fixture(name);
    for (unsigned seed = 0; seed < 300; ++seed) {
      std::mt19937 random(seed);
      std::vector<TokenId> ids(random() % 40);
      for (TokenId& id : ids) {
        id = static_cast<TokenId>(random() % static_cast<unsigned>(tokenizer->vocabulary_size()));
      }
      for (const bool skip_special : {true, false}) {
        Detokenizer detokenizer(*tokenizer, skip_special);
        std::string joined;
        for (const TokenId id : ids) {
          const std::string part = detokenizer.push(id);
          ASSERT_EQ(first_invalid_utf8(part), std::nullopt) << name << " seed " << seed;
          joined += part;
        }
        joined += detokenizer.finish();
        ASSERT_EQ(joined, tokenizer->decode(ids, skip_special)) << name << " seed " << seed;
        ASSERT_EQ(first_invalid_utf8(joined), std::nullopt);
      }
    }
  }
}

TEST(Detokenizer, HoldsBytesBackUntilTheCharacterIsWhole) {
  const auto tokenizer = fixture("llama2");
  const std::vector<TokenId> ids = tokenizer->encode("a\U0001F9FF");  // four byte tokens after the a
  ASSERT_EQ(ids.size(), 5u);
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(ids[0]), "a");
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(detokenizer.push(ids[i]), "");
  EXPECT_EQ(detokenizer.push(ids[4]), "\U0001F9FF");
  EXPECT_EQ(detokenizer.finish(), "");
  for (std::size_t i = 1; i < 4; ++i) detokenizer.push(ids[i]);
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
}

TEST(Detokenizer, LeavesControlTokensOutWhenAsked) {
  const auto tokenizer = fixture("qwen2");
  const std::vector<TokenId> ids = tokenizer->encode("a<|im_end|><think>b", true);
  EXPECT_EQ(tokenizer->decode(ids, true), "a<think>b");
  EXPECT_EQ(tokenizer->decode(ids, false), "a<|im_end|><think>b");
}

}  // namespace
}  // namespace espalier
