#include "session/told_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ToldTokensTest : public ::testing::Test {
 protected:
  ToldTokens told_;
  std::int64_t text_ = 0;  // that has come out

  // Token `id` has these bytes; `out` bytes of text come out with it, and its last `pending` do not.
  void push(TokenId id, const std::string& bytes, std::int64_t out, std::int64_t pending = 0) {
    const std::int64_t offset = text_;
    text_ += out;
    told_.push({.id = id, .bytes = bytes, .offset = offset}, text_, pending);
  }
  static std::vector<TokenId> ids(const std::vector<TextToken>& tokens) {
    std::vector<TokenId> result;
    for (const TextToken& token : tokens) result.push_back(token.id);
    return result;
  }
};

TEST_F(ToldTokensTest, ATokenIsToldWhenAllOfItsTextIsSaid) {
  push(1, "ab", 2);
  push(2, "cd", 2);
  push(3, "ef", 2);
  EXPECT_THAT(told_.take(1), IsEmpty());
  EXPECT_THAT(ids(told_.take(2)), ElementsAre(1));
  EXPECT_THAT(told_.take(3), IsEmpty()) << "half of the second";
  EXPECT_THAT(ids(told_.take(6)), ElementsAre(2, 3));
  EXPECT_THAT(told_.take(6), IsEmpty());
}

TEST_F(ToldTokensTest, TokensThatShareACharacterAreToldWithIt) {
  push(1, "a\xE2", 1, 1);
  push(2, "\x82", 0, 2);
  EXPECT_THAT(told_.take(1), IsEmpty());
  push(3, "\xAC", 3);
  EXPECT_THAT(ids(told_.take(4)), ElementsAre(1, 2, 3));
}

TEST_F(ToldTokensTest, ATokenThatCompletesACharacterAndBeginsAnotherWaitsForThat) {
  push(1, "\xE2\x82", 0, 2);
  push(2, "\xAC\xC3", 3, 1);
  EXPECT_THAT(ids(told_.take(3)), ElementsAre(1));
  push(3, "", 0, 1);
  EXPECT_THAT(told_.take(3), IsEmpty()) << "a control token keeps its place";
  push(4, "\xA4", 2);
  EXPECT_THAT(ids(told_.take(5)), ElementsAre(2, 3, 4));
}

TEST_F(ToldTokensTest, AtTheEndAllAreComplete) {
  push(1, "a", 1);
  push(2, "\xE2", 0, 1);
  text_ += 3;  // U+FFFD
  told_.finish(text_);
  EXPECT_THAT(ids(told_.take(4)), ElementsAre(1, 2));
}

TEST_F(ToldTokensTest, OfATextThatIsCutThoseBehindTheCutAreLeftOut) {
  const auto before = [&](std::int64_t end) {
    told_ = {};
    text_ = 0;
    push(1, "ab", 2);
    push(2, "", 0);
    push(3, "cd", 2);
    push(4, "", 0);
    push(5, "\xE2", 0, 1);
    return ids(told_.take_before(end));
  };
  EXPECT_THAT(before(0), IsEmpty());
  EXPECT_THAT(before(1), ElementsAre(1, 2)) << "half of the first is there";
  EXPECT_THAT(before(2), ElementsAre(1, 2)) << "the second has no text, and stands before the cut";
  EXPECT_THAT(before(3), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(before(4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(before(5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(told_.take(100), IsEmpty()) << "the others are gone";
}

}  // namespace
}  // namespace espalier
