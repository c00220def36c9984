#include "text/token_text.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(TokenText, WhatWouldMoveTheCursorIsWrittenAsAnEscape) {
  EXPECT_EQ(quoted_token(" the"), "\" the\"");
  EXPECT_EQ(quoted_token("a\n\tb\r"), "\"a\\n\\tb\\r\"");
  EXPECT_EQ(quoted_token("\x1b[31m"), "\"\\x1b[31m\"");
  EXPECT_EQ(quoted_token("\u0085"), "\"\\x85\"");
  EXPECT_EQ(quoted_token("say \"\\\""), "\"say \\\"\\\\\\\"\"");
  EXPECT_EQ(quoted_token("\u202Eabc\u200B"), "\"\\u202eabc\\u200b\"");
  EXPECT_EQ(quoted_token(std::string(1, '\0')), "\"\\x00\"");
}

TEST(TokenText, WhatJoinsCharactersAndCannotBeSeenIsWrittenAsAnEscape) {
  EXPECT_EQ(quoted_token("\u200D"), "\"\\u200d\"");
  const std::string family = quoted_token("\U0001F468\u200D\U0001F469\u200D\U0001F467");
  EXPECT_EQ(family, "\"\U0001F468\\u200d\U0001F469\\u200d\U0001F467\"");
  EXPECT_EQ(display_width(family), 3 * 2 + 2 * 6 + 2);
  EXPECT_EQ(quoted_token("\u00AD\u2066\uFEFF\uFDD0\U000E0041"), "\"\\xad\\u2066\\ufeff\\ufdd0\\ue0041\"");
  EXPECT_EQ(quoted_token("e\u0301\uD55C"), "\"e\u0301\uD55C\"");
  EXPECT_EQ(quoted_token("\u2764\uFE0F"), "\"\u2764\uFE0F\"") << "a red heart";
}

TEST(TokenText, PartsOfCharactersAreShownAsTheirBytes) {
  EXPECT_EQ(quoted_token("\xe2\x80"), "\"\\xe2\\x80\"");
  EXPECT_EQ(quoted_token("a\xff"), "\"a\\xff\"");
  EXPECT_EQ(quoted_token("\uFFFF"), "\"\\uffff\"");
  EXPECT_EQ(quoted_token("\u4E2D"), "\"\u4E2D\"");
}

TEST(TokenText, WideCharactersTakeTwoColumnsAndMarksNone) {
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\u00e9"), 1);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("\u4E2D\u6587"), 4);
  EXPECT_EQ(display_width("\U0001F333"), 2);
  EXPECT_EQ(display_width("\xff"), 1);
  EXPECT_EQ(display_width("\uD55C\uAE00"), 4);
  EXPECT_EQ(display_width("\u0301"), 0);
  EXPECT_EQ(display_width("\u200D"), 0);
  EXPECT_EQ(display_width("\U0001F468\u200D\U0001F469\u200D\U0001F467"), 6) << "as terminals that join none";
  EXPECT_EQ(display_width("\uFF21\uFF71"), 3) << "full width and half width";
  EXPECT_EQ(display_width("\u0E19\u0E49\u0E33"), 2) << "a mark outside of the blocks for marks";
}

TEST(TokenText, CuttingNeverSplitsACharacterAndNeverExceedsTheWidth) {
  const std::string text = "pear \u4E2D\u6587 e\u0301t\u00e9";
  for (int width = 0; width <= display_width(text) + 1; ++width) {
    for (const std::string& cut : {cut_to_width(text, width), cut_front_to_width(text, width)}) {
      EXPECT_LE(display_width(cut), width) << cut;
      EXPECT_EQ(cut.find("\\x"), std::string::npos);
    }
    EXPECT_EQ(display_width(fit_to_width(text, width)), width) << width;
  }
  EXPECT_EQ(cut_to_width("abcdef", 4), "abc\u2026");
  EXPECT_EQ(cut_front_to_width("abcdef", 4), "\u2026def");
  EXPECT_EQ(cut_to_width("abcdef", 6), "abcdef");
  EXPECT_EQ(cut_to_width("\u4E2D\u6587", 3), "\u4E2D\u2026");
}

}  // namespace
}  // namespace espalier
