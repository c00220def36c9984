#include "model/rotation_tables.h"

#include <gtest/gtest.h>

#include "device/reference/reference_device.h"

namespace espalier {
namespace {

class RotationTest : public ::testing::Test {
 protected:
  std::vector<float> read(const ConstView& table) {
    std::vector<float> values(static_cast<std::size_t>(table.elements()));
    download<float>(*device_, table, values);
    return values;
  }

  std::unique_ptr<Device> device_ = make_reference_device();
  Rotation rotation_{*device_, Rope{.inverse_frequencies = {1.0f, 0.1f}}};
};

TEST_F(RotationTest, WhoeverNeedsNoMorePositionsGetsTheTablesThatAreThere) {
  const auto first = rotation_.tables(8);
  EXPECT_EQ(first->positions(), 8);
  EXPECT_EQ(rotation_.tables(8), first);
  EXPECT_EQ(rotation_.tables(3), first);
}

TEST_F(RotationTest, LongerTablesBeginWithTheSameBitsAndLeaveTheShorterOnesInPlace) {
  const auto shorter = rotation_.tables(8);
  const std::vector<float> cosine = read(shorter->cosine), sine = read(shorter->sine);
  const auto longer = rotation_.tables(9);
  EXPECT_EQ(longer->positions(), 9);
  EXPECT_EQ(read(longer->cosine.view.rows(0, 8)), cosine);
  EXPECT_EQ(read(longer->sine.view.rows(0, 8)), sine);
  EXPECT_EQ(read(shorter->cosine), cosine) << "somebody still uses them";
  EXPECT_EQ(rotation_.tables(8), longer);
}

}  // namespace
}  // namespace espalier
