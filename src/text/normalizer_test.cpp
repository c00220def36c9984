#include "text/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace espalier {
namespace {

constexpr char kAllow = MarkedText::kAllowSpecial;

TEST(Normalizer, ComposesCharacters) {
  MarkedText text;
  text.append("cafe\u0301 \u1112\u1161\u11ab a\u0323\u0302", kAllow);
  const MarkedText composed = Normalizer({Normalizer::Nfc{}}).apply(text);
  EXPECT_EQ(composed.text, "caf\u00e9 \ud55c \u1ead");
  EXPECT_EQ(composed.marks, std::string(composed.text.size(), kAllow));
}

TEST(Normalizer, AComposedCharacterAllowsOnlyWhatAllItsPartsAllow) {
  MarkedText text;
  text.append("<s=", kAllow);
  text.append("\u0338x", 0);  // = and this compose to U+2260
  const MarkedText composed = Normalizer({Normalizer::Nfc{}}).apply(text);
  EXPECT_EQ(composed.text, "<s\u2260x");
  EXPECT_EQ(composed.marks, std::string({kAllow, kAllow, 0, 0, 0, 0}));
}

TEST(Normalizer, PrependsToWhatIsNotEmptyAndReplaces) {
  const Normalizer normalizer({Normalizer::Prepend{"_"}, Normalizer::Replace{" ", "__"}});
  MarkedText text;
  EXPECT_EQ(normalizer.apply(text).text, "");
  text.append("a b ", kAllow);
  EXPECT_EQ(normalizer.apply(text).text, "_a__b__");
  EXPECT_EQ(normalizer.apply(text).marks.size(), 7u);
}

TEST(Normalizer, ALiteralCharacterIsNotReplaced) {
  MarkedText text;
  text.append("a", 0);
  text.append("a", MarkedText::kLiteral);
  EXPECT_EQ(replace_all(text, "a", "b").text, "ba");
}

}  // namespace
}  // namespace espalier
