#include "model/step_tables.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace espalier {
namespace {

// A root at place 3 with two children, and a child of the second that sees nothing before place 2.
std::vector<Row> rows_of_a_tree() {
  return {{.place = 3, .begin = 1, .end = 3},
          {.place = 4, .begin = 1, .end = 3, .ancestors = {3}},
          {.place = 5, .begin = 1, .end = 3, .ancestors = {3}},
          {.place = 6, .begin = 2, .end = 3, .ancestors = {3, 5}}};
}

std::string drawn(const std::vector<std::uint8_t>& hidden, std::size_t columns) {
  std::string text;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    if (i % columns < 9) text += hidden[i] == 0 ? '.' : hidden[i] == 1 ? '#' : '?';
    if (i % columns == columns - 1) text += '\n';
  }
  return text;
}

TEST(StepMask, HidesWithOneAndKeepsWithZeroAndPaddingSeesAPlaceOfItsOwn) {
  std::vector<std::uint8_t> hidden(6 * 128, 7);
  write_mask(rows_of_a_tree(), 128, hidden);
  EXPECT_EQ(drawn(hidden, 128),
            "#...#####\n"
            "#....####\n"
            "#...#.###\n"
            "##..#..##\n"
            ".########\n"
            "#.#######\n");
}

TEST(StepMask, AWindowThatBeginsInsideTheTreeShowsNothingOfTheContext) {
  const Row deep{.place = 6, .begin = 4, .end = 3, .ancestors = {5}};
  std::vector<std::uint8_t> hidden(128, 7);
  write_mask(std::span(&deep, 1), 128, hidden);
  EXPECT_EQ(drawn(hidden, 128), "#####..##\n");
}

TEST(StepMask, ColumnsAreTheSmallestMultipleOf128ThatHoldsWhatRowsSee) {
  const auto columns = [](std::int32_t place, std::int32_t end) {
    const Row row{.place = place, .end = end};
    return mask_columns(std::span(&row, 1));
  };
  EXPECT_EQ(columns(0, 0), 128);
  EXPECT_EQ(columns(127, 127), 128);
  EXPECT_EQ(columns(128, 127), 256);
  EXPECT_EQ(columns(5, 129), 256);
}

TEST(StepMask, RefusesBytesThatAreNotItsRows) {
  const std::vector<Row> rows = rows_of_a_tree();
  std::vector<std::uint8_t> hidden(4 * 128);
  EXPECT_NO_THROW(write_mask(rows, 128, hidden));
  EXPECT_THROW(write_mask(rows, 256, hidden), std::logic_error) << "two rows of bytes for four rows";
  hidden.resize(4 * 128 + 1);
  EXPECT_THROW(write_mask(rows, 128, hidden), std::logic_error);
  const Row far{.place = 128, .end = 128};
  EXPECT_THROW(write_mask(std::span(&far, 1), 128, std::span(hidden).first(128)), std::logic_error);
}

}  // namespace
}  // namespace espalier
