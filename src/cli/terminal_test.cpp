#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Terminal, ColourIsForTerminalsUnlessSomebodySaysOtherwise) {
  EXPECT_TRUE(wants_colour("auto", true, false));
  EXPECT_FALSE(wants_colour("auto", true, true));
  EXPECT_FALSE(wants_colour("auto", false, false));
  EXPECT_TRUE(wants_colour("always", false, true));
  EXPECT_FALSE(wants_colour("never", true, false));
}

}  // namespace
}  // namespace espalier
