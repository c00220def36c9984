#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "format/testing/complaint.h"
#include "text/sentencepiece_load.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/testing/tokenizer_fixture.h"
#include "text/tokenizer_config.h"

namespace espalier {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string pangu_bytes() {
  return read_text_file(tokenizer_folder("pangu") / "tokenizer.model");
}

TokenizerConfig pangu_config() {
  const auto path = tokenizer_folder("pangu") / "tokenizer_config.json";
  return parse_tokenizer_config(read_text_file(path), path.string());
}

std::string model_refusal(std::string_view bytes, const TokenizerConfig& config = {}) {
  const std::string message = complaint([&] { load_sentencepiece(bytes, "tokenizer.model", config); });
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

TEST(SentencePieceModel, IsReadAndWrittenBack) {
  const SentencePieceModel model = parse_sentencepiece_model(pangu_bytes(), "test");
  EXPECT_EQ(model.pieces.size(), 1300u);
  EXPECT_EQ(model.pieces[1].text, "<s>");
  EXPECT_EQ(model.pieces[1].type, SentencePieceModel::Type::control);
  EXPECT_EQ(model.algorithm, SentencePieceModel::Algorithm::bpe);
  EXPECT_TRUE(model.byte_fallback);
  EXPECT_TRUE(model.add_dummy_prefix);
  EXPECT_FALSE(model.remove_extra_whitespaces);
  EXPECT_EQ(model.character_map, "");
  const SentencePieceModel again = parse_sentencepiece_model(serialize(model), "test");
  ASSERT_EQ(again.pieces.size(), model.pieces.size());
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    EXPECT_EQ(again.pieces[id].text, model.pieces[id].text);
    EXPECT_EQ(again.pieces[id].score, model.pieces[id].score);
    EXPECT_EQ(again.pieces[id].type, model.pieces[id].type);
  }
  EXPECT_EQ(serialize(again), serialize(model));
}

TEST(BadSentencePieceModel, CutAnywhereItIsRefusedOrStillAModel) {
  const std::string bytes = pangu_bytes();
  for (std::size_t size = 0; size < bytes.size(); size += 97) {
    try {
      EXPECT_FALSE(parse_sentencepiece_model(bytes.substr(0, size), "tokenizer.model").pieces.empty());
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("tokenizer.model: expected a SentencePiece model"));
    }
  }
}

TEST(BadSentencePieceModel, BytesThatAreNoModel) {
  EXPECT_THAT(model_refusal(""), HasSubstr("found no pieces"));
  EXPECT_THAT(model_refusal("{\"json\": 1}"), HasSubstr("expected a SentencePiece model"));
  EXPECT_THAT(model_refusal("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), HasSubstr("longer than what is left"));
  EXPECT_THAT(model_refusal(std::string(20, '\xFF')), HasSubstr("an integer without end"));
  EXPECT_THAT(model_refusal(std::string("\x0A\x02\x18\x09", 4)), HasSubstr("a value out of range"));
  EXPECT_THAT(model_refusal(std::string("\x0A\x02\x08\x09", 4)), HasSubstr("a field of the wrong type"));
  EXPECT_THAT(model_refusal(std::string("\x0A\x03\x0A\x01\xFF", 5)), HasSubstr("piece 0 is not valid UTF-8"));
  EXPECT_THAT(model_refusal(std::string("\x0A\x03\x0A\x01z", 5)), HasSubstr("SentencePiece refuses the model"));
}

TEST(BadSentencePieceModel, AddedTokensThatContradictTheModel) {
  TokenizerConfig config;
  config.added_tokens = {{.text = "<x>", .id = 1}};
  EXPECT_THAT(model_refusal(pangu_bytes(), config),
              HasSubstr("added token 1 is \"<x>\", but piece 1 of the model is \"<s>\""));
  config.added_tokens = {{.text = "<x>", .id = 1301}};
  EXPECT_THAT(model_refusal(pangu_bytes(), config), HasSubstr("expected at most 1300 (no gaps are allowed)"));
  config.added_tokens = {{.text = "", .id = 1300}};
  EXPECT_THAT(model_refusal(pangu_bytes(), config), HasSubstr("is empty"));
  config.added_tokens = {{.text = "<s>", .id = 1300}};
  EXPECT_THAT(model_refusal(pangu_bytes(), config), HasSubstr("added tokens 1 and 1300 are both \"<s>\""));
}

TEST(BadTokenizerConfig, EveryLieIsNamed) {
  const auto message = [](std::string_view json) {
    return complaint([&] { parse_tokenizer_config(json, "tokenizer_config.json"); });
  };
  EXPECT_EQ(message("{}"), "");
  EXPECT_EQ(message(R"({"bos_token": 1})"), "tokenizer_config.json: bos_token: expected an object, got number");
  EXPECT_EQ(message(R"({"add_bos_token": "x"})"),
            "tokenizer_config.json: add_bos_token: expected true or false, got string");
  EXPECT_EQ(message(R"({"added_tokens_decoder": {"x\n": {}}})"),
            "tokenizer_config.json: added_tokens_decoder: expected a token id, got \"x\\x0a\"");
  EXPECT_EQ(message(R"({"added_tokens_decoder": {"1": {}}})"),
            "tokenizer_config.json: added_tokens_decoder.1: \"content\" is missing");
}

TEST(SentencePieceTokenizer, AddedTokensMayExtendTheVocabulary) {
  TokenizerConfig config = pangu_config();
  config.added_tokens.push_back({.text = "<pad>", .id = 1300, .special = true});
  const auto tokenizer = load_sentencepiece(pangu_bytes(), "test", config);
  EXPECT_EQ(tokenizer->vocabulary_size(), 1301);
  EXPECT_THAT(tokenizer->encode("<pad>", true), ElementsAre(1300));
  EXPECT_EQ(tokenizer->bytes(1300, false), "<pad>");
}

TEST(SentencePieceTokenizer, ControlTokensAreFoundInAnyContextAndNextToEachOther) {
  const auto tokenizer = load_sentencepiece(pangu_bytes(), "test", pangu_config());
  const TokenId begin = *tokenizer->find_special("[unused9]");
  const TokenId end = *tokenizer->find_special("[unused10]");
  EXPECT_THAT(tokenizer->encode("[unused9][unused10][unused9]", true), ElementsAre(begin, end, begin));
  EXPECT_THAT(tokenizer->encode("a[unused10]b", true), Contains(end));
}

TEST(SentencePieceTokenizer, AUserDefinedPieceOfTheModelThatIsAControlTokenCannotBeTyped) {
  // In the file the library itself would find [unused10] anywhere.
  const SentencePieceModel model = parse_sentencepiece_model(pangu_bytes(), "test");
  const auto tokenizer = load_sentencepiece(pangu_bytes(), "test", pangu_config());
  const TokenId end = *tokenizer->find_special("[unused10]");
  ASSERT_EQ(model.pieces[static_cast<std::size_t>(end)].type, SentencePieceModel::Type::user_defined);
  EXPECT_THAT(tokenizer->encode("a[unused10]b", false), Not(Contains(end)));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a[unused10]b", false)), "a[unused10]b");
}

TEST(SentencePieceTokenizer, ThePrefixComesAfterEveryControlTokenOrOnlyFirst) {
  TokenizerConfig config = pangu_config();
  const auto every = load_sentencepiece(pangu_bytes(), "test", config);
  config.tokenizer_class = "LlamaTokenizer";
  config.legacy = false;
  const auto first = load_sentencepiece(pangu_bytes(), "test", config);
  const std::vector<TokenId> fox = every->encode("fox");
  std::vector<TokenId> twice = fox;
  twice.push_back(1);
  twice.insert(twice.end(), fox.begin(), fox.end());
  EXPECT_EQ(every->encode("fox<s>fox", true), twice);
  EXPECT_NE(first->encode("fox<s>fox", true), twice);
  EXPECT_EQ(first->encode("fox"), fox);
  for (const std::string text : {"fox<s>fox", "<s>fox", "<s> fox", " fox<s>  fox "}) {
    EXPECT_EQ(every->decode(every->encode(text, true)), text);
    EXPECT_EQ(first->decode(first->encode(text, true)), text);
  }
}

TEST(SentencePieceTokenizer, ASpaceMarkerInTheTextComesBackAsItself) {
  const auto tokenizer = load_sentencepiece(pangu_bytes(), "test", pangu_config());
  for (const std::string text : {"\u2581", "\u2581\u2581a", "a \u2581 b", "\u2581\u2582\u2583", "x<s>\u2581"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true)), text);
  }
}

TEST(SentencePieceTokenizer, AModelThatCollapsesSpacesIsFollowed) {
  SentencePieceModel model = parse_sentencepiece_model(pangu_bytes(), "test");
  model.remove_extra_whitespaces = true;
  const auto tokenizer = load_sentencepiece(serialize(model), "test", pangu_config());
  const auto exact = load_sentencepiece(pangu_bytes(), "test", pangu_config());
  EXPECT_EQ(tokenizer->encode("  the  fox "), exact->encode("the fox"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  the  fox ")), "the fox");
}

}  // namespace
}  // namespace espalier
