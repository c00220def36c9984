// tokenizer.json: what is read, and every way it can lie.
#include "text/bpe_from_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "format/testing/complaint.h"

namespace espalier {
namespace {

using Json = nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// a 0, b 1, ab 2, Ġ 3, <s> 4 (control), <t> 5
Json byte_level() {
  return Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "<t>"}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "post_processor": {"type": "ByteLevel"},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": ["a b"]}})");
}

// Llama 2: <unk> 0, <s> 1, bytes from 2, ▁ 258, a 259, ▁a 260
Json sentencepiece_style() {
  Json document = Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "merges": [["▁", "a"]],
              "vocab": {"<unk>": 0, "<s>": 1, "▁": 258, "a": 259, "▁a": 260}}})");
  for (int byte = 0; byte < 256; ++byte) document["model"]["vocab"][fmt::format("<0x{:02X}>", byte)] = 2 + byte;
  return document;
}

std::unique_ptr<const Tokenizer> load_json(const Json& document, const TokenizerConfig& config = {}) {
  return parse_tokenizer_json(document.dump(), "tokenizer.json", config);
}

// The message a changed document is refused with.
std::string json_refusal(const std::function<void(Json&)>& change, Json document = byte_level()) {
  change(document);
  const std::string message = complaint([&] { load_json(document); });
  EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
  return message;
}

TEST(TokenizerJson, ReadsByteLevelBpe) {
  const auto tokenizer = load_json(byte_level());
  EXPECT_EQ(tokenizer->vocabulary_size(), 6);
  EXPECT_THAT(tokenizer->encode("ab <s><t>b", true), ElementsAre(2, 3, 4, 5, 1));
  EXPECT_THAT(tokenizer->encode("<s><t>", false), ElementsAre(5)) << "< and > and s are not in this vocabulary";
  EXPECT_TRUE(tokenizer->is_special(4));
  EXPECT_FALSE(tokenizer->is_special(5)) << "a word, not a control token";
  EXPECT_EQ(tokenizer->find_special("<s>"), 4);
  EXPECT_EQ(tokenizer->find_special("<t>"), std::nullopt);
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_FALSE(tokenizer->add_bos());
}

TEST(TokenizerJson, MergesMayBeStringsOrPairs) {
  Json document = byte_level();
  document["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  EXPECT_THAT(load_json(document)->encode("ab"), ElementsAre(2));
}

TEST(TokenizerJson, TheTemplateTellsWhetherBosIsAdded) {
  Json document = byte_level();
  document["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
    {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}]})");
  const auto tokenizer = load_json(document);
  EXPECT_EQ(tokenizer->bos(), 4);
  EXPECT_TRUE(tokenizer->add_bos());
  TokenizerConfig config;
  config.add_bos_token = false;
  EXPECT_FALSE(load_json(document, config)->add_bos()) << "tokenizer_config.json has the last word";
}

TEST(TokenizerJson, TheConfigNamesBosAndEos) {
  TokenizerConfig config;
  config.bos_token = "<s>";
  config.eos_token = "<t>";
  const auto tokenizer = load_json(byte_level(), config);
  EXPECT_EQ(tokenizer->bos(), 4);
  EXPECT_EQ(tokenizer->eos(), 5);
  EXPECT_FALSE(tokenizer->add_bos());
}

TEST(TokenizerJson, ReadsSentencePieceWrittenAsMerges) {
  const auto tokenizer = load_json(sentencepiece_style());
  EXPECT_THAT(tokenizer->encode("a a"), ElementsAre(260, 260));
  EXPECT_THAT(tokenizer->encode("\u00e9"), ElementsAre(258, 2 + 0xC3, 2 + 0xA9));
  EXPECT_THAT(tokenizer->encode("a<s>a", true), ElementsAre(260, 1, 260));
  for (const std::string text : {"a", " a", "  a ", "\u00e9<s>a", "<s> <s>", "\u2581a \u2581"}) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, true)), text);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false)), text);
  }
}

TEST(TokenizerJson, ASpaceMarkerInTheTextIsSpelledInBytes) {
  EXPECT_THAT(load_json(sentencepiece_style())->encode("\u2581"), ElementsAre(258, 2 + 0xE2, 2 + 0x96, 2 + 0x81));
}

TEST(TokenizerJson, MetaspacePutsItsPrefixFirstAlwaysOrNever) {
  Json document = sentencepiece_style();
  document["normalizer"] = nullptr;
  const auto encode = [&](const char* scheme) {
    document["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", false}};
    return load_json(document)->encode("a<s>a", true);
  };
  EXPECT_THAT(encode("first"), ElementsAre(260, 1, 259));
  EXPECT_THAT(encode("always"), ElementsAre(260, 1, 260));
  EXPECT_THAT(encode("never"), ElementsAre(259, 1, 259));
}

TEST(TokenizerJson, ATokenMayBeLookedForAfterNormalisation) {
  Json document = sentencepiece_style();
  document["added_tokens"][1]["normalized"] = true;  // so it is found as ▁<s>
  const auto tokenizer = load_json(document);
  EXPECT_THAT(tokenizer->encode("<s>", true), ElementsAre(1));
  EXPECT_THAT(tokenizer->encode("a <s>", true), ElementsAre(260, 1));
  const TextPiece pieces[] = {{"a ", true}, {"<s>", false}};
  EXPECT_THAT(tokenizer->encode(pieces), testing::Not(testing::Contains(1)));
}

TEST(TokenizerJson, AControlTokenThatIsASingleByteStaysOrdinary) {
  Json document = byte_level();
  document["added_tokens"].push_back({{"id", 0}, {"content", "a"}, {"special", true}});
  const auto tokenizer = load_json(document);
  EXPECT_FALSE(tokenizer->is_special(0));
  EXPECT_THAT(tokenizer->encode("a"), ElementsAre(0));
}

// -- lies

TEST(BadTokenizerJson, NotJson) {
  EXPECT_THROW(parse_tokenizer_json("{", "tokenizer.json", {}), InputError);
  EXPECT_THROW(parse_tokenizer_json("", "tokenizer.json", {}), InputError);
  EXPECT_THROW(parse_tokenizer_json("[]", "tokenizer.json", {}), InputError);
}

TEST(BadTokenizerJson, MissingKeys) {
  EXPECT_EQ(json_refusal([](Json& d) { d.erase("model"); }), "tokenizer.json: \"model\" is missing");
  EXPECT_EQ(json_refusal([](Json& d) { d["model"].erase("vocab"); }), "tokenizer.json: model: \"vocab\" is missing");
  EXPECT_EQ(json_refusal([](Json& d) { d["model"].erase("merges"); }), "tokenizer.json: model: \"merges\" is missing");
  EXPECT_EQ(json_refusal([](Json& d) { d["added_tokens"][0].erase("id"); }),
            "tokenizer.json: added_tokens[0]: \"id\" is missing");
  EXPECT_EQ(json_refusal([](Json& d) { d["pre_tokenizer"].erase("type"); }),
            "tokenizer.json: pre_tokenizer: \"type\" is missing");
}

TEST(BadTokenizerJson, WrongTypes) {
  EXPECT_EQ(json_refusal([](Json& d) { d["model"] = 3; }), "tokenizer.json: model: expected an object, got number");
  EXPECT_EQ(json_refusal([](Json& d) { d["model"]["vocab"] = Json::array(); }),
            "tokenizer.json: model.vocab: expected an object, got array");
  EXPECT_EQ(json_refusal([](Json& d) { d["model"]["vocab"]["a"] = "0"; }),
            "tokenizer.json: model.vocab: \"a\": expected an integer, got string");
  EXPECT_EQ(json_refusal([](Json& d) { d["model"]["merges"] = 1; }),
            "tokenizer.json: model.merges: expected an array, got number");
  EXPECT_EQ(json_refusal([](Json& d) { d["added_tokens"] = "x"; }),
            "tokenizer.json: added_tokens: expected an array, got string");
  EXPECT_EQ(json_refusal([](Json& d) { d["added_tokens"][0]["special"] = 1; }),
            "tokenizer.json: added_tokens[0].special: expected true or false, got number");
  EXPECT_EQ(json_refusal([](Json& d) { d["added_tokens"][0]["id"] = 4.5; }),
            "tokenizer.json: added_tokens[0].id: expected an integer, got number");
  EXPECT_EQ(json_refusal([](Json& d) { d["pre_tokenizer"] = true; }),
            "tokenizer.json: pre_tokenizer: expected an object, got boolean");
}

TEST(BadTokenizerJson, IdsOutOfRange) {
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["vocab"]["a"] = -1; }),
              HasSubstr("\"a\" has id -1, expected 0 to 5"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["vocab"]["a"] = 4000000000u; }), HasSubstr("has id 4000000000"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["vocab"]["a"] = UINT64_MAX; }), HasSubstr("expected 0 to 5"));
  EXPECT_THAT(json_refusal([](Json& d) { d["added_tokens"][0]["id"] = -4; }), HasSubstr("expected a token id, got -4"));
  EXPECT_THAT(json_refusal([](Json& d) { d["added_tokens"][0]["id"] = UINT64_MAX; }), HasSubstr("too large"));
}

TEST(BadTokenizerJson, GapsBetweenIds) {
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["vocab"]["ab"] = 6; }), HasSubstr("no gaps are allowed"));
  EXPECT_THAT(json_refusal([](Json& d) { d["added_tokens"][1]["id"] = 7; }), HasSubstr("no gaps are allowed"));
}

TEST(BadTokenizerJson, TwoTokensWithOneId) {
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["vocab"]["b"] = 0; }),
              HasSubstr("\"a\" and \"b\" have the same id 0"));
  EXPECT_THAT(json_refusal([](Json& d) { d["added_tokens"][1]["id"] = 4; }), HasSubstr("have the same id 4"));
}

TEST(BadTokenizerJson, OneTokenWithTwoIds) {
  EXPECT_THAT(json_refusal([](Json& d) {
                d["added_tokens"].push_back({{"id", 0}, {"content", "b"}});
              }),
              HasSubstr("added token \"b\" has id 0, but 1 in the vocabulary"));
  EXPECT_THAT(json_refusal([](Json& d) { d["added_tokens"][1]["content"] = "<s>"; }), HasSubstr("added token"));
  EXPECT_THAT(json_refusal([](Json& d) { d["added_tokens"][0]["content"] = ""; }), HasSubstr("is empty"));
}

TEST(BadTokenizerJson, AnEmptyVocabulary) {
  EXPECT_THAT(json_refusal([](Json& d) {
                d["model"]["vocab"] = Json::object();
                d["model"]["merges"] = Json::array();
                d["added_tokens"] = Json::array();
              }),
              HasSubstr("the vocabulary is empty"));
}

TEST(BadTokenizerJson, MergesThatAreNone) {
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = "ab"; }), HasSubstr("model.merges[0]: expected"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = "a b c"; }), HasSubstr("got \"a b c\""));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = {"a"}; }), HasSubstr("got array"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = {"a", 1}; }), HasSubstr("got array"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = 7; }), HasSubstr("got number"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = "b a"; }), HasSubstr("\"ba\" is not a token"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["merges"][0] = "a z"; }), HasSubstr("is not a token"));
}

TEST(BadTokenizerJson, PartsThatAreNotSupportedAreNamed) {
  EXPECT_EQ(json_refusal([](Json& d) { d["model"]["type"] = "WordPiece"; }),
            "tokenizer.json: model.type: \"WordPiece\" is not supported");
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["dropout"] = 0.1; }), HasSubstr("\"dropout\""));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["end_of_word_suffix"] = "</w>"; }),
              HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(json_refusal([](Json& d) { d["model"]["unk_token"] = "?"; }),
              HasSubstr("unk_token: \"?\" is not a token"));
  EXPECT_THAT(json_refusal([](Json& d) { d["normalizer"] = {{"type", "Lowercase"}}; }), HasSubstr("\"Lowercase\""));
  EXPECT_THAT(json_refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("\"Whitespace\""));
  EXPECT_THAT(json_refusal([](Json& d) { d["pre_tokenizer"]["add_prefix_space"] = true; }),
              HasSubstr("add_prefix_space"));
  EXPECT_THAT(json_refusal([](Json& d) { d["decoder"] = {{"type", "WordPiece"}}; }), HasSubstr("\"WordPiece\""));
  EXPECT_THAT(json_refusal([](Json& d) { d["decoder"] = nullptr; }), HasSubstr("decoder does not undo"));
  EXPECT_THAT(json_refusal([](Json& d) {
                d["post_processor"] = {{"type", "BertProcessing"}};
              }),
              HasSubstr("BertProcessing"));
  EXPECT_THAT(json_refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "MergedWithNext"}};
              }),
              HasSubstr("\"MergedWithNext\""));
  EXPECT_THAT(json_refusal([](Json& d) {
                d["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
              }),
              HasSubstr("pre_tokenizer.pattern"));
}

TEST(BadTokenizerJson, HostileTextStaysInOneLine) {
  const std::string message =
      json_refusal([](Json& d) { d["model"]["type"] = "a\nb\x1b[31m" + std::string(5000, 'x'); });
  EXPECT_LT(message.size(), 300u);
}

}  // namespace
}  // namespace espalier
