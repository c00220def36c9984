#include "text/added_tokens.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier {
namespace {

using testing::ElementsAre;

MarkedText marked(const std::vector<TextPiece>& pieces) {
  return join_pieces(pieces);
}

// "[text]" for what lies between, "3" for token 3.
std::vector<std::string> split(const AddedTokens& tokens, const MarkedText& text) {
  std::vector<std::string> result;
  for (const auto& segment : tokens.split(text)) {
    const std::string between = text.text.substr(segment.begin, segment.end - segment.begin);
    result.push_back(segment.id ? std::to_string(*segment.id) : fmt::format("[{}]", between));
  }
  return result;
}

const AddedTokens& chat_tokens() {
  static const AddedTokens kTokens({{.text = "<s>", .id = 1, .special = true},
                                    {.text = "<s>x", .id = 2, .special = true},
                                    {.text = "<think>", .id = 3}});
  return kTokens;
}

TEST(AddedTokens, TheLeftmostWinsAndAmongThoseTheLongest) {
  EXPECT_THAT(split(chat_tokens(), marked({{"a<s><s>x<s", true}})), ElementsAre("[a]", "1", "2", "[<s]"));
}

TEST(AddedTokens, TextThatAllowsNoneGivesNoControlToken) {
  EXPECT_THAT(split(chat_tokens(), marked({{"a<s>b", false}})), ElementsAre("[a<s>b]"));
}

TEST(AddedTokens, AControlTokenMayNotReachIntoTextThatAllowsNone) {
  EXPECT_THAT(split(chat_tokens(), marked({{"<", true}, {"s>", false}})), ElementsAre("[<s>]"));
  EXPECT_THAT(split(chat_tokens(), marked({{"<s", false}, {">", true}})), ElementsAre("[<s>]"));
  EXPECT_THAT(split(chat_tokens(), marked({{"<", true}, {"s", false}, {">", true}})), ElementsAre("[<s>]"));
  EXPECT_THAT(split(chat_tokens(), marked({{"<s>", true}, {"x", false}})), ElementsAre("1", "[x]"));
}

TEST(AddedTokens, AControlTokenMayCrossPiecesThatAllowIt) {
  EXPECT_THAT(split(chat_tokens(), marked({{"<", true}, {"s>", true}})), ElementsAre("1"));
}

TEST(AddedTokens, OrdinaryWordsAreFoundEverywhere) {
  EXPECT_THAT(split(chat_tokens(), marked({{"a<thi", true}, {"nk>", false}})), ElementsAre("[a]", "3"));
}

TEST(AddedTokens, AStrippingTokenSwallowsWhiteSpaceAroundIt) {
  const AddedTokens tokens({{.text = "L", .id = 1, .strip_left = true}, {.text = "R", .id = 2, .strip_right = true}});
  EXPECT_THAT(split(tokens, marked({{"a \u3000L b", true}})), ElementsAre("[a]", "1", "[ b]"));
  EXPECT_THAT(split(tokens, marked({{"a R\n\tb", true}})), ElementsAre("[a ]", "2", "[b]"));
  EXPECT_THAT(split(tokens, marked({{"R L", true}})), ElementsAre("2", "1"));
}

TEST(AddedTokens, ASingleWordTokenIsNotFoundInsideAWord) {
  const AddedTokens tokens({{.text = "cat", .id = 1, .single_word = true}});
  EXPECT_THAT(split(tokens, marked({{"cat concat cats \u00e9cat cat.", true}})),
              ElementsAre("1", "[ concat cats \u00e9cat ]", "1", "[.]"));
}

TEST(AddedTokens, ATextWithoutTokensIsOneSegment) {
  EXPECT_THAT(split(AddedTokens(), marked({{"abc", true}})), ElementsAre("[abc]"));
  EXPECT_THAT(split(AddedTokens(), marked({{"", true}})), ElementsAre());
}

}  // namespace
}  // namespace espalier
