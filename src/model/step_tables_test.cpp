#include "model/step_tables.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <stdexcept>
#include <string>

#include "cache/kv_cache.h"
#include "device/checked/checked_device.h"
#include "device/conformance/sparing_device.h"
#include "device/reference/reference_device.h"

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

// --- keys -----------------------------------------------------------------------------------------------------------

constexpr StepForm kForms[] = {
    {AttentionOp::fused, MaskForm::list}, {AttentionOp::fused, MaskForm::dense}, {AttentionOp::eager, MaskForm::dense}};
constexpr std::int64_t kPositions = 600;  // five blocks
constexpr std::int64_t kMostSequences = 3;

const std::vector<std::int64_t> kRecorded = {1, 2, 4, 8};

// Tables of steps of up to 20 rows over a cache in which three sequences have a branch.
struct KeyedTables {
  KeyedTables(std::unique_ptr<Device> d, const StepForm& form)
      : device(std::move(d)),
        cache(*device, {.layers = 1, .kv_heads = 1, .head_size = 8}, kMostSequences * 640),
        tables(*device, cache.memory(), 20, kPositions, form) {
    for (std::int64_t s = 0; s < kMostSequences; ++s) branches.push_back(*cache.begin(cache.create(), kPositions));
  }

  // A row that sees all places before its own, the last `depth` of them as ancestors.
  Row row(std::int32_t place, std::int32_t depth = 0, std::size_t sequence = 0) const {
    Row made{.sequence = branches[sequence].id(), .place = place, .end = place - depth};
    for (std::int32_t p = made.end; p < place; ++p) made.ancestors.push_back(p);
    return made;
  }
  StepKey key(const std::vector<Row>& rows) { return tables.prepare(rows).key; }

  std::unique_ptr<Device> device;
  KvCache cache;
  StepTables tables;
  std::vector<Branch> branches;
};

// Distinct places, some of them in a tree.
std::vector<Row> random_rows(std::mt19937& random, const KeyedTables& tables) {
  std::vector<Row> rows;
  const auto count = 1 + static_cast<std::int32_t>(random() % 4),
             sequences = 1 + static_cast<std::int32_t>(random() % 3);
  const auto first = static_cast<std::int32_t>(random() % (kPositions - 8));
  for (std::int32_t i = 0; i < count; ++i) {
    const auto depth = std::min(first, static_cast<std::int32_t>(random() % 5));
    rows.push_back(tables.row(first + i, depth, static_cast<std::size_t>(i % sequences)));
    rows.back().wants_logits = random() % 2 == 0;
    rows.back().wants_hidden = random() % 4 == 0;
    rows.back().wants_taps = random() % 4 == 0;
  }
  return rows;
}

std::vector<ConstView> views_of(const StepPlan& plan) {
  const RowTables& r = plan.rows;
  return {r.token,     r.position, r.slot, r.sequence, r.begin,          r.end,        r.ancestor_count,
          r.ancestors, r.blocks,   r.mask, plan.input, plan.output_rows, plan.tap_rows};
}

void expect_views_to_follow_from_keys(std::unique_ptr<Device> device, const StepForm& form) {
  KeyedTables tables(std::move(device), form);
  std::map<StepKey, std::vector<ConstView>> known;
  std::mt19937 random(17);
  constexpr int kSteps = 1000;
  for (int step = 0; step < kSteps; ++step) {
    const StepPlan plan = tables.tables.prepare(random_rows(random, tables));
    const auto [entry, is_new] = known.emplace(plan.key, views_of(plan));
    ASSERT_TRUE(entry->second == views_of(plan)) << "seed 17, step " << step;
  }
  EXPECT_GT(kSteps - std::ssize(known), kSteps / 4) << "too few steps had the key of an earlier one";
}

TEST(StepKeys, EqualKeysMeanTheSameViewsWhateverTheRowsAre) {
  for (const StepForm& form : kForms) {
    expect_views_to_follow_from_keys(make_reference_device(), form);
    expect_views_to_follow_from_keys(make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend}),
                                     form);
    expect_views_to_follow_from_keys(std::make_unique<SparingDevice>(make_reference_device(), kRecorded), form);
  }
}

TEST(StepKeys, TheContextDoublesUpToTheLongestTable) {
  KeyedTables tables(make_reference_device(), {});
  EXPECT_EQ(tables.key({tables.row(0)}).context, 128);
  EXPECT_EQ(tables.key({tables.row(127)}).context, 128);
  EXPECT_EQ(tables.key({tables.row(128)}).context, 256);
  EXPECT_EQ(tables.key({tables.row(3), tables.row(300)}).context, 512);
  EXPECT_EQ(tables.key({tables.row(599)}).context, 640) << "five blocks are all there are";
  EXPECT_EQ(tables.tables.prepare(std::vector{tables.row(300)}).rows.blocks.dim(1), 4);
  EXPECT_EQ(tables.tables.prepare(std::vector{tables.row(599)}).rows.blocks.dim(1), 5);
}

TEST(StepKeys, AncestorsAndSequencesAreRoundedUpToPowersOfTwo) {
  KeyedTables tables(make_reference_device(), {});
  EXPECT_EQ(tables.key({tables.row(9)}).ancestors, 1);
  EXPECT_EQ(tables.key({tables.row(9, 3)}).ancestors, 4);
  EXPECT_EQ(tables.key({tables.row(9, 4)}).ancestors, 4);
  const Row a = tables.row(1), b = tables.row(1, 0, 1), c = tables.row(1, 0, 2);
  EXPECT_EQ(tables.key({a}).sequences, 1);
  EXPECT_EQ(tables.key({a, b}).sequences, 2);
  EXPECT_EQ(tables.key({a, b, c}).sequences, 3) << "never more than rows";
  EXPECT_EQ(tables.key({a, tables.row(2), b, c}).sequences, 4);
}

TEST(StepKeys, RowsAreExactWhereADeviceTakesAnyNumberAndRoundedWhereItHasBuckets) {
  for (const bool buckets : {false, true}) {
    KeyedTables tables(buckets ? make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend})
                               : make_reference_device(),
                       {});
    std::vector<Row> rows = {tables.row(1), tables.row(2), tables.row(3), tables.row(4)};
    rows[0].wants_logits = rows[1].wants_logits = rows[2].wants_logits = rows[1].wants_taps = true;
    const StepKey key = tables.key(rows);
    EXPECT_EQ(key.rows, buckets ? 8 : 4);
    EXPECT_EQ(key.logit_rows, buckets ? 8 : 3);
    EXPECT_EQ(key.output_rows, buckets ? 8 : 3);
    EXPECT_EQ(key.tap_rows, buckets ? 2 : 1);
  }
}

TEST(StepKeys, StepsThatAreNotRecordedAsTheyAreShareTheRecordingOfMoreRowsAndLongerOnesHaveTheirOwn) {
  KeyedTables tables(std::make_unique<SparingDevice>(make_reference_device(), kRecorded), {});
  const auto drawn = [&](std::int32_t count) {
    std::vector<Row> rows;
    for (std::int32_t place = 0; place < count; ++place) rows.push_back(tables.row(place));
    for (Row& row : rows) row.wants_logits = row.wants_taps = true;
    return rows;
  };
  EXPECT_EQ(tables.key(drawn(5)), tables.key(drawn(8)));
  EXPECT_EQ(tables.key(drawn(7)).logit_rows, 8);
  EXPECT_EQ(tables.key(drawn(7)).tap_rows, 8);
  EXPECT_NE(tables.key(drawn(4)), tables.key(drawn(8)));
  EXPECT_EQ(tables.key(drawn(9)).rows, 9);
  EXPECT_EQ(tables.key(drawn(19)).tap_rows, 19);
}

TEST(StepKeys, RowsThatPadAStepWriteSlotsOfNobodyAndSeeNothingButThemselves) {
  KeyedTables tables(std::make_unique<SparingDevice>(make_reference_device(), kRecorded), {});
  const std::vector<Row> rows = {tables.row(1), tables.row(2), tables.row(3), tables.row(4), tables.row(5)};
  tables.tables.prepare(rows, [&](const HostTables& host) {
    ASSERT_EQ(host.rows, 8);
    for (std::size_t i = 5; i < 8; ++i) {
      EXPECT_EQ(host.slot[i], tables.cache.tables().padding_slot(static_cast<std::int64_t>(i) - 5));
      EXPECT_EQ(host.begin[i], host.end[i]);
      EXPECT_EQ(host.ancestor_count[i], 0);
      EXPECT_EQ(host.sequence[i], 1) << "behind the only sequence";
    }
  });
}

TEST(StepKeys, AnotherFormIsAnotherKey) {
  std::map<StepKey, int> keys;
  for (const StepForm& form : kForms) {
    KeyedTables tables(make_reference_device(), form);
    ++keys[tables.key({tables.row(1)})];
  }
  EXPECT_EQ(keys.size(), 3U);
}

TEST(StepKeys, RefusesPlacesBehindTheLongestTable) {
  KeyedTables tables(make_reference_device(), {});
  Row row = tables.row(9);
  row.end = 641;
  EXPECT_THROW(tables.key({row}), std::logic_error);
}

}  // namespace
}  // namespace espalier
