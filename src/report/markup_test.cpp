#include "report/markup.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/untrusted_text.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kHostile = "</script><script>alert('x')</script>\"&<!--\x01\x1b[31m\xff\xc3(\xed\xa0\x80";

TEST(Markup, TextOfOthersHasNoMarkupLeft) {
  const std::string text = markup_text(kHostile);
  EXPECT_THAT(text, Not(HasSubstr("<")));
  EXPECT_THAT(text, Not(HasSubstr(">")));
  EXPECT_THAT(text, Not(HasSubstr("\"")));
  EXPECT_THAT(text, Not(HasSubstr("'")));
  EXPECT_EQ(text.substr(0, 15), "&lt;/script&gt;");
}

TEST(Markup, WhatNoXmlReaderTakesIsReplaced) {
  EXPECT_EQ(markup_text("a\x01"
                        "b\x7f\xef\xbf\xbe"),
            "a\uFFFDb\uFFFD\uFFFD");
  EXPECT_EQ(markup_text("\xff"), "\uFFFD");
  EXPECT_TRUE(is_utf8(markup_text(kHostile)));
  EXPECT_EQ(markup_text("Stra\u00dfe \u6f22\n\t"), "Stra\u00dfe \u6f22\n\t");
}

TEST(Markup, EveryByteIsAnswered) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = markup_text(std::string(1, static_cast<char>(byte)));
    EXPECT_TRUE(is_utf8(text)) << byte;
    EXPECT_FALSE(text.empty()) << byte;
  }
}

TEST(Markup, NothingInALineOfMarkdownIsASign) {
  EXPECT_EQ(markdown_text("accept_L of EAGLE-Pangu's"), "accept_L of EAGLE-Pangu's");
  EXPECT_EQ(markdown_text("a|b *c* _d_ `e` [f](g) <b> &amp; \\"),
            "a\\|b \\*c\\* \\_d_ \\`e\\` \\[f\\](g) &lt;b> &amp;amp; \\\\");
  EXPECT_EQ(markdown_text("# one\n\ttwo\xff"), "\\# one  two\uFFFD");
}

TEST(Markup, JsonInAScriptCannotEndIt) {
  const nlohmann::ordered_json value = {{"</script>", std::string(kHostile)}, {"line", "\u2028"}};
  const std::string script = script_json(value);
  EXPECT_THAT(script, Not(HasSubstr("<")));
  EXPECT_THAT(script, Not(HasSubstr("&")));
  for (const char c : script) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << script;
  const auto read = nlohmann::json::parse(script);
  EXPECT_EQ(read["line"], "\u2028");
  EXPECT_THAT(read["</script>"].get<std::string>(), HasSubstr("</script><script>alert('x')</script>\"&<!--\x01"));
}

TEST(Markup, ASlugIsSafeInIdsFilesAndLinks) {
  EXPECT_EQ(slug("accept_L p90"), "accept-l-p90");
  EXPECT_EQ(slug("../../etc/passwd"), "etc-passwd");
  EXPECT_EQ(slug("\"><script>"), "script");
  EXPECT_EQ(slug("\xff"), "x");
  EXPECT_EQ(slug(std::string(500, 'a')).size(), 60u);
}

}  // namespace
}  // namespace espalier
