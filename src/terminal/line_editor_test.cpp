#include "terminal/line_editor.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(LineEditor, APasteKeepsItsLinesAndLosesControlCharacters) {
  EXPECT_EQ(tidy_paste(L"one\rtwo\r\nthree\nfour"), L"one\ntwo\nthree\nfour") << "terminals send \\r for a line's end";
  EXPECT_EQ(tidy_paste(L"a\033[31m\tb\x7f\n"), L"a[31m\tb");
  EXPECT_EQ(tidy_paste(L"日本 \U0001F600"), L"日本 \U0001F600");
  EXPECT_EQ(tidy_paste(L""), L"");
}

}  // namespace
}  // namespace espalier
