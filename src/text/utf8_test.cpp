#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier {
namespace {

TEST(Utf8, EveryCodePointIsWrittenAndReadBack) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code_point);
    const Utf8Step step = utf8_step(text);
    ASSERT_EQ(step.kind, Utf8Step::Kind::character) << std::hex << static_cast<std::uint32_t>(code_point);
    ASSERT_EQ(step.code_point, code_point);
    ASSERT_EQ(step.size, text.size());
    ASSERT_EQ(utf8_length(text[0]), text.size());
  }
}

TEST(Utf8, InvalidTextIsFoundAtItsFirstBadByte) {
  EXPECT_EQ(first_invalid_utf8("caf\xC3\xA9"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("ab\xFFz"), 2u);
  EXPECT_EQ(first_invalid_utf8("a\x80"), 1u);
  EXPECT_EQ(first_invalid_utf8("a\xC3"), 1u) << "a character may not stop half-way";
  EXPECT_EQ(first_invalid_utf8("\xC0\x80"), 0u) << "overlong";
  EXPECT_EQ(first_invalid_utf8("\xED\xA0\x80"), 0u) << "surrogate";
  EXPECT_EQ(first_invalid_utf8("\xF4\x90\x80\x80"), 0u) << "above U+10FFFF";
}

TEST(Utf8, AnUnfinishedCharacterStaysPending) {
  std::string pending = "a\xF0\x9F\x98";
  EXPECT_EQ(take_characters(pending), "a");
  EXPECT_EQ(pending, "\xF0\x9F\x98");
  pending += "\x80!";
  EXPECT_EQ(take_characters(pending), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(pending, "");
}

TEST(Utf8, EachMaximalInvalidPartBecomesOneReplacementCharacter) {
  // The example of the Unicode standard, table 3-8: F1 80 80 | E1 80 | C2 are three parts.
  std::string pending = "a\xF1\x80\x80\xE1\x80\xC2z\x80\xFF";
  EXPECT_EQ(take_characters(pending), "a\uFFFD\uFFFD\uFFFDz\uFFFD\uFFFD");
}

}  // namespace
}  // namespace espalier
