#include "device/checked/round_rules.h"

#include <gtest/gtest.h>

#include "device/checked/checked_device.h"
#include "device/checked/testing/expect_violation.h"
#include "device/conformance/placed_tensor.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

// One tree of a root and two levels, of which a test damages a table.
class RoundRules : public testing::Test {
 protected:
  Tensor ints(std::initializer_list<std::int64_t> shape, const std::vector<std::int32_t>& values) {
    Tensor tensor = device_->tensor(DType::i32, shape);
    upload<std::int32_t>(*device_, values, tensor);
    return tensor;
  }
  Tensor unwritten(std::initializer_list<std::int64_t> shape) { return device_->tensor(DType::i32, shape); }
  static void set(Device& device, const Tensor& tensor, std::int64_t i, std::int32_t value) {
    const View flat = tensor.view.reshaped({tensor.view.elements()});
    upload<std::int32_t>(device, std::vector{value}, flat.rows(i, 1));
  }
  NodeTables nodes(std::int64_t columns) const {
    const auto first = [&](const Tensor& table) { return table.view.columns(0, columns); };
    return {first(token_), first(parent_), first(depth_), first(score_), first(row_)};
  }

  GrowLevel second_level() const {
    return {.nodes = nodes(5),
            .root = one_,
            .levels = levels_,
            .entry = entry_,
            .rank = rank_,
            .frontier = frontier_,
            .guess_row = guess_row_,
            .guesses = {guess_, log_probability_, count_},
            .next = next_,
            .level = 2};
  }
  PlaceRows placed_rows() const {
    return {.nodes = nodes(3),
            .listed = listed_,
            .first = one_,
            .root_position = one_,
            .begin = one_,
            .seed = one_,
            .places = {.blocks = blocks_, .block_size = 4},
            .rows = {.token = row_token_,
                     .position = row_position_,
                     .slot = row_slot_,
                     .sequence = row_sequence_,
                     .begin = row_begin_,
                     .end = row_end_,
                     .ancestor_count = row_count_,
                     .ancestors = row_ancestors_,
                     .input = row_input_}};
  }
  void run(const RoundOp& op) { device_->round_ops()->run(op); }
  void expect_refused(const RoundOp& op, std::string_view argument, std::int64_t row, std::string_view rule) {
    expect_violation([&] { run(op); }, {name(op), argument, row}, rule);
  }

  std::unique_ptr<CheckedDevice> device_ = make_checked_device(make_reference_device());
  Tensor token_ = ints({1, 5}, {7, 8, 9, 0, 0}), parent_ = ints({1, 5}, {0, 0, 0, 0, 0}),
         depth_ = ints({1, 5}, {0, 1, 1, 0, 0}), row_ = ints({1, 5}, {0, 0, 0, 0, 0});
  Tensor score_ = [this] {
    Tensor tensor = device_->tensor(DType::f64, {1, 5});
    upload<double>(*device_, std::vector<double>{0, -1, -2, 0, 0}, tensor);
    return tensor;
  }();
  Tensor log_probability_ = [this] {
    Tensor tensor = device_->tensor(DType::f64, {1, 2});
    upload<double>(*device_, std::vector<double>{-1, -2}, tensor);
    return tensor;
  }();
  Tensor one_ = ints({1}, {1}), levels_ = ints({1}, {4}), entry_ = ints({2}, {0, 0}), rank_ = ints({2}, {0, 1}),
         frontier_ = ints({1, 1}, {1}), guess_row_ = ints({1, 1}, {0}), guess_ = ints({1, 2}, {3, 4}),
         count_ = ints({1}, {2}), next_ = unwritten({1, 2}), listed_ = ints({1, 2}, {1, 0}),
         blocks_ = ints({1, 2}, {1, 0}), row_token_ = unwritten({2}), row_position_ = unwritten({2}),
         row_slot_ = unwritten({2}), row_sequence_ = unwritten({2}), row_begin_ = unwritten({2}),
         row_end_ = unwritten({2}), row_count_ = unwritten({2}), row_ancestors_ = unwritten({2, 1}),
         row_input_ = unwritten({2});
};

TEST_F(RoundRules, AcceptWhatIsRight) {
  EXPECT_NO_THROW(run(second_level()));
  EXPECT_NO_THROW(run(placed_rows()));
}

TEST_F(RoundRules, AFrontierNamesNodesOfTheLevelsBefore) {
  set(*device_, frontier_, 0, 3);
  expect_refused(second_level(), "frontier", 0, "R11");
  set(*device_, frontier_, 0, -1);
  expect_refused(second_level(), "frontier", 0, "R13");
}

TEST_F(RoundRules, RanksAscendBelowAnEntry) {
  set(*device_, rank_, 1, 0);
  expect_refused(second_level(), "entry", 1, "R11");
}

TEST_F(RoundRules, GuessesAreAsManyAsThereIsRoomFor) {
  set(*device_, count_, 0, 3);
  expect_refused(second_level(), "guesses.count", 0, "R11");
}

TEST_F(RoundRules, WhatALevelReadsWasWritten) {
  const GrowLevel op = second_level();
  device_->discard(depth_.view);
  EXPECT_THROW(run(op), RuleViolation);
}

TEST_F(RoundRules, ParentsStandBeforeTheirChildren) {
  set(*device_, parent_, 1, 2);
  expect_refused(placed_rows(), "nodes.parent", 1, "R11");
}

TEST_F(RoundRules, PlacesLieInTheTableOfBlocks) {
  PlaceRows op = placed_rows();
  op.offset = 6;
  expect_refused(op, "first", 0, "R14");
}

TEST_F(RoundRules, ARowHasAColumnForEveryRowAboveIt) {
  set(*device_, parent_, 2, 1);
  set(*device_, row_, 0, 1);
  set(*device_, row_, 1, 2);
  set(*device_, listed_, 0, 2);
  PlaceRows op = placed_rows();
  op.prior_rows = 4;
  expect_refused(op, "listed", 0, "R11");
}

TEST_F(RoundRules, AnInputIsARowOfThePassBefore) {
  set(*device_, parent_, 2, 1);
  set(*device_, row_, 1, 2);
  set(*device_, listed_, 0, 2);
  PlaceRows op = placed_rows();
  op.prior_rows = 1;
  expect_refused(op, "nodes.row", 1, "R11");
  op.prior_offset = 1;
  EXPECT_NO_THROW(run(op));
}

TEST_F(RoundRules, ShapesAreRefusedEverywhere) {
  GrowLevel op = second_level();
  op.guess_row = one_;
  EXPECT_THROW(make_reference_device()->round_ops()->run(op), std::logic_error);
  op = second_level();
  op.level = 1;
  EXPECT_THROW(make_reference_device()->round_ops()->run(op), std::logic_error);
}

TEST(CheckedAscend, HasNoRoundOps) {
  EXPECT_EQ(make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend})->round_ops(), nullptr);
}

}  // namespace
}  // namespace espalier
