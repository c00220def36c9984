#include "base/untrusted_text.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(UntrustedText, WellFormedUtf8OfEveryLengthIsAccepted) {
  for (std::string_view text : {"", "a", "\u00e9", "\u20ac", "\U0001f333", "\ufffd\U0010ffff"})
    EXPECT_TRUE(is_utf8(text)) << text;
}

TEST(UntrustedText, MalformedUtf8IsRefused) {
  for (std::string_view text :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x80\x80", "\xe2\x82", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xfe"})
    EXPECT_FALSE(is_utf8(text)) << in_quotes(text);
}

TEST(UntrustedText, QuotingKeepsTextAndEscapesWhatCannotBePrinted) {
  EXPECT_EQ(in_quotes("blk.0"), "\"blk.0\"");
  EXPECT_EQ(in_quotes("\u00e9\n\x7f\xff"), "\"\u00e9\\x0a\\x7f\\xff\"");
}

TEST(UntrustedText, QuotingCutsLongText) {
  const std::string text = in_quotes(std::string(1000, 'a'));
  EXPECT_LT(text.size(), 110u);
  EXPECT_TRUE(text.ends_with("...\""));
}

}  // namespace
}  // namespace espalier
