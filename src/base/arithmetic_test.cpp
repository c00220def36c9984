#include "base/arithmetic.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {
namespace {

std::string refusal(const nlohmann::json& recorded) {
  try {
    check_arithmetic("run.json", recorded);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Arithmetic, ARecordWithAnotherNumberOrNoneIsRefusedInALineWithBoth) {
  EXPECT_EQ(refusal(2), "");
  const std::string end = ", this program computes with 2: its bits need not come out again";
  EXPECT_EQ(refusal(1), "run.json: arithmetic 1" + end);
  EXPECT_EQ(refusal(3), "run.json: arithmetic 3" + end);
  EXPECT_EQ(refusal(nullptr), "run.json: arithmetic 1" + end);
  EXPECT_NE(refusal("2"), "") << "a text is no number";
}

TEST(Arithmetic, LanesAreAddedInHalves) {
  double lanes[8] = {1, 2, 0x1p60, 4, 5, 6, -0x1p60, 8};
  EXPECT_EQ(add_halves(lanes), 26.0);
  float apart[8] = {1, 0, 0x1p60f, 0, 0, 0, 0, -0x1p60f};
  EXPECT_EQ(add_halves(apart), 0.0f) << "2 and 7 meet last";
}

}  // namespace
}  // namespace espalier
