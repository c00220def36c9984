#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/testing/complaint.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Pretokenizer named(std::string_view name) {
  std::vector<Pretokenizer::Step> steps;
  for (const std::string_view pattern : find_pretokenizer(name, "test").patterns) {
    steps.push_back({.regex = PretokenizerRegex(pattern, "test")});
  }
  return Pretokenizer(std::move(steps));
}

std::vector<std::string> words(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<std::string> result;
  for (const auto& word : pretokenizer.split(text)) result.emplace_back(text.substr(word.begin, word.end - word.begin));
  return result;
}

std::string regex_refusal(std::string_view pattern) {
  return complaint([&] { PretokenizerRegex(pattern, "tokenizer.json: pattern"); });
}

TEST(Pretokenizer, WithoutStepsTheTextIsOneWord) {
  EXPECT_THAT(words(Pretokenizer(), "a b"), ElementsAre("a b"));
  EXPECT_THAT(words(Pretokenizer(), ""), ElementsAre());
}

TEST(Pretokenizer, Gpt2KeepsNumbersWholeAndSmollmCutsThemApart) {
  EXPECT_THAT(words(named("gpt-2"), "it's 123  ok"), ElementsAre("it", "'s", " 123", " ", " ok"));
  EXPECT_THAT(words(named("smollm"), "it's 123  ok"), ElementsAre("it", "'s", " ", "1", "2", "3", " ", " ok"));
}

TEST(Pretokenizer, Llama3TakesDigitsByThreeAndQwen2OneByOne) {
  EXPECT_THAT(words(named("llama-bpe"), "IT'S 1234!\n\nx"), ElementsAre("IT", "'S", " ", "123", "4", "!\n\n", "x"));
  EXPECT_THAT(words(named("qwen2"), "12 x"), ElementsAre("1", "2", " x"));
}

TEST(Pretokenizer, TekkenCutsWhereLowerCaseTurnsUpper) {
  EXPECT_THAT(words(named("tekken"), "camelCaseHTML a/b/\n"), ElementsAre("camel", "Case", "HTML", " a", "/b", "/\n"));
}

TEST(Pretokenizer, WhiteSpaceIsWhatUnicodeSaysNotWhatPcre2Says) {
  EXPECT_THAT(words(named("gpt-2"), "\u180e\u180e"), ElementsAre("\u180e\u180e"));
  EXPECT_THAT(words(named("gpt-2"), "a\u0085\u3000b"), ElementsAre("a", "\u0085", "\u3000", "b"));
}

TEST(Pretokenizer, AStepCanDropWhatItDoesNotMatch) {
  const Pretokenizer letters({{.regex = PretokenizerRegex(R"(\p{L}+)", "test"), .keep_gaps = false}});
  EXPECT_THAT(words(letters, "a, b"), ElementsAre("a", "b"));
}

TEST(Pretokenizer, AnUnknownNameListsTheKnownOnes) {
  try {
    find_pretokenizer("falcon", "model.gguf");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "model.gguf: unknown pre-tokenizer \"falcon\", known are: gpt-2, smollm, llama-bpe, llama3, "
                 "qwen2, deepseek-r1-qwen, tekken");
  }
}

TEST(Pretokenizer, LongRunsOfOneKindTakeLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"}) {
    const Pretokenizer pretokenizer = named(name);
    for (const std::string_view unit : {" ", "a", "A", "\n", "!", "\t ", "\u4e00", "\u0301", "'", " \n"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      EXPECT_GE(pretokenizer.split(text).size(), 1u);
      EXPECT_GE(pretokenizer.split(text + "x").size(), 1u);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(PretokenizerRegex, ConstructsOnWhichTheDialectsDifferAreRefused) {
  EXPECT_THAT(regex_refusal(R"(\w+)"), HasSubstr(R"("\w" at byte 0 is not supported)"));
  EXPECT_THAT(regex_refusal(R"(a\b)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal(R"(\h)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal(R"(\1)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal(R"(\pL)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal(R"(\u12)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("[a&&b]"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("[[a]b]"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("[[:alpha:]]"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("[]a]"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal(R"(\p{N}{1,3}+)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("(?R)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("(?P<a>b)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("(*ACCEPT)"), HasSubstr("not supported"));
  EXPECT_THAT(regex_refusal("a\\"), HasSubstr("not supported"));
}

TEST(PretokenizerRegex, AMalformedPatternIsRefusedInOneLine) {
  EXPECT_THAT(regex_refusal("(a"), HasSubstr("missing closing parenthesis"));
  EXPECT_THAT(regex_refusal(R"(\p{Nonsense})"), HasSubstr("unknown property"));
  EXPECT_THAT(regex_refusal("\xFF"), HasSubstr("not valid UTF-8"));
}

TEST(PretokenizerRegex, APatternThatExplodesGivesUp) {
  const PretokenizerRegex regex("(?:a+)+[bc]", "test");
  const std::string text(64, 'a');
  EXPECT_THROW(regex.for_each_match(text, [](std::size_t, std::size_t) {}), InputError);
}

TEST(PretokenizerRegex, AnEmptyMatchCutsWithoutAWord) {
  const Pretokenizer before_upper({{.regex = PretokenizerRegex(R"((?=\p{Lu}))", "test")}});
  EXPECT_THAT(words(before_upper, "\u00e9tatFooBar"), ElementsAre("\u00e9tat", "Foo", "Bar"));
}

TEST(PretokenizerRegex, ALiteralMatchesItself) {
  const Pretokenizer literal({{.regex = PretokenizerRegex(pattern_for_literal("a.+[\u00e9"), "test")}});
  EXPECT_THAT(words(literal, "xa.+[\u00e9y"), ElementsAre("x", "a.+[\u00e9", "y"));
}

}  // namespace
}  // namespace espalier
