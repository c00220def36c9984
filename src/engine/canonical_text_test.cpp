#include "engine/canonical_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

namespace espalier {
namespace {

TEST(CanonicalText, HasALineForEachFactInTheirOrder) {
  CanonicalText text("things 1");
  text.word("word", "f16");
  text.word("nothing", "");
  text.number("number", -7);
  text.natural("natural", std::numeric_limits<std::uint64_t>::max());
  text.real("real", 0.8f);
  text.flag("flag", true);
  text.text("text", "a\n\xc3\xa4");
  text.text("no_text", "");
  text.texts("texts", {"x", "yz"});
  text.numbers("numbers", std::vector<std::int32_t>{3, 1, 2});
  text.numbers("no_numbers", {});
  EXPECT_EQ(text.lines(),
            "things 1\nword f16\nnothing -\nnumber -7\nnatural 18446744073709551615\nreal 3f4ccccd\nflag 1\n"
            "text 610ac3a4\nno_text -\ntexts 78 797a\nnumbers 3 1 2\nno_numbers -\n");
}

TEST(CanonicalText, TellsFloatsApartThatLookAlike) {
  EXPECT_EQ(canonical_real(0.0f), "00000000");
  EXPECT_EQ(canonical_real(-0.0f), "80000000");
  EXPECT_EQ(canonical_real(1.0f), "3f800000");
  EXPECT_EQ(canonical_real(-std::numeric_limits<float>::infinity()), "ff800000");
}

TEST(CanonicalText, HasTheHashOfItsLines) {
  // printf 'a\n' | sha256sum
  EXPECT_EQ(CanonicalText("a").sha256(), "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7");
}

TEST(CanonicalText, RefusesAWordThatCouldBeTwoLines) {
  CanonicalText text("t");
  for (const char* word : {"a b", "a\nb", "-", "\x7f"}) EXPECT_THROW(text.word("w", word), std::logic_error) << word;
}

}  // namespace
}  // namespace espalier
