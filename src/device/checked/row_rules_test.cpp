// R11 to R13, R19 to R23 and R32 for the row tables of attention, on a checked device.
#include "device/checked/row_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "device/checked/checked_device.h"
#include "device/checked/testing/expect_violation.h"
#include "device/conformance/attention_scenario.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

// Two sequences, blocks of 4 slots, in a pool of 6 blocks. Sequence 0 has a prefix of 5 in blocks 3 and 1 and a tree
// behind it: rows 0, 1 (child of 0), 2 (child of 1), 3 (child of 0). Sequence 1 is a prefill: rows 4, 5 at positions 2
// and 3 in block 5. Written besides the rows: the prefixes.
class RowRules : public testing::Test {
 protected:
  RowRules() {
    tables_.ancestor_columns = 3;
    tables_.sequences = 2;
    tables_.blocks_per_sequence = 3;
    tables_.blocks = {3, 1, 0, 5, 0, 0};
    tables_.slot = {5, 6, 7, 0, 22, 23};
    tables_.sequence = {0, 0, 0, 0, 1, 1};
    tables_.begin = {0, 0, 0, 0, 0, 1};
    tables_.end = {5, 5, 5, 5, 2, 3};
    tables_.ancestor_count = {0, 1, 2, 1, 0, 0};
    tables_.ancestors = {0, 0, 0, 5, 0, 0, 5, 6, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0};
    write_keys({12, 13, 14, 15, 4, 20, 21});
    write_keys(tables_.slot);
  }

  void write_keys(const std::vector<std::int32_t>& slots) {
    const auto count = static_cast<std::int64_t>(slots.size());
    const Tensor k = device_->tensor(DType::f32, {count, 1, 8}), slot = device_->tensor(DType::i32, {count});
    upload<float>(*device_, RandomValues(1).values(count * 8), k);
    upload<std::int32_t>(*device_, slots, slot);
    device_->kv_write(k, k, slot, {kv_k_, kv_v_});
    written_.insert(slots.begin(), slots.end());
  }

  void use_mask() {
    tables_.mask_columns = 128;
    tables_.mask.assign(6 * 128, 1);
    const std::vector<std::vector<int>> shown = {
        {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 8}, {0, 1, 2},
        {1, 2, 3}};
    for (std::size_t r = 0; r < shown.size(); ++r)
      for (int c : shown[r]) mask(r, c) = 0;
  }
  std::uint8_t& mask(std::size_t row, int column) { return tables_.mask[row * 128 + static_cast<std::size_t>(column)]; }

  void attend(bool eager = false) {
    const DeviceRowTables rows = upload_tables(*device_, tables_);
    const Tensor q = device_->tensor(DType::f32, {6, 2, 8}), out = device_->tensor(DType::f32, {6, 2, 8});
    upload<float>(*device_, RandomValues(2).values(6 * 2 * 8), q);
    if (eager) {
      device_->attention_eager(q, {kv_k_, kv_v_}, rows.rows, 1.0f, out);
    } else {
      device_->attention(q, {kv_k_, kv_v_}, rows.rows, 1.0f, out);
    }
  }
  void expect_broken(std::string_view argument, std::int64_t row, std::string_view rule) {
    expect_violation([&] { attend(); }, {"attention", argument, row}, rule);
    if (tables_.mask_columns > 0) expect_violation([&] { attend(true); }, {"attention_eager", argument, row}, rule);
  }

  std::unique_ptr<CheckedDevice> device_ = make_checked_device(make_reference_device());
  Tensor kv_k_ = device_->tensor(DType::f16, {6, 4, 1, 8});
  Tensor kv_v_ = device_->tensor(DType::f16, {6, 4, 1, 8});
  HostRowTables tables_;
  std::set<std::int64_t> written_;
};

TEST_F(RowRules, LegalTablesPass) {
  attend();
  use_mask();
  attend();
  attend(true);
}

TEST_F(RowRules, R4AnUnwrittenTableIsNotRead) {
  DeviceRowTables rows = upload_tables(*device_, tables_);
  const Tensor q = device_->tensor(DType::f32, {6, 2, 8}), out = device_->tensor(DType::f32, {6, 2, 8});
  upload<float>(*device_, RandomValues(2).values(6 * 2 * 8), q);
  const Tensor fresh = device_->tensor(DType::i32, {6});
  rows.rows.begin = fresh;
  expect_violation(
      [&] {
        device_->attention(q, {kv_k_, kv_v_}, rows.rows, 1.0f, out);
      },
      {"attention", "rows.begin", 0}, "R4");
}

TEST_F(RowRules, R11SequencesBlocksCountsAndAncestorsAreInRange) {
  tables_.sequence[4] = 2;
  expect_broken("rows.sequence", 4, "R11");
  tables_.sequence[4] = 1;
  tables_.blocks[5] = 6;  // in an entry no row uses
  expect_broken("rows.blocks", 1, "R11");
  tables_.blocks[5] = 0;
  tables_.ancestor_count[1] = 4;
  expect_broken("rows.ancestor_count", 1, "R11");
  tables_.ancestor_count[1] = 1;
  tables_.ancestors[3 * 3] = 24;
  expect_broken("rows.ancestors", 3, "R11");
}

TEST_F(RowRules, R12TheRowsWriteDistinctSlotsInRange) {
  tables_.slot[3] = 24;
  expect_broken("rows.slot", 3, "R12");
  tables_.slot[3] = 6;
  expect_broken("rows.slot", 3, "R12");
}

TEST_F(RowRules, R13NoEntryIsNegativeAndUnusedOnesAreZero) {
  const auto expect_sentinel = [&](std::int32_t& entry, std::string_view argument, std::int64_t row) {
    const std::int32_t legal = entry;
    for (const std::int32_t sentinel : {-1, std::numeric_limits<std::int32_t>::min()}) {
      entry = sentinel;
      expect_broken(argument, row, "R13");
    }
    entry = legal;
  };
  expect_sentinel(tables_.slot[5], "rows.slot", 5);
  expect_sentinel(tables_.sequence[0], "rows.sequence", 0);
  expect_sentinel(tables_.begin[2], "rows.begin", 2);
  expect_sentinel(tables_.end[2], "rows.end", 2);
  expect_sentinel(tables_.ancestor_count[1], "rows.ancestor_count", 1);
  expect_sentinel(tables_.ancestors[2 * 3], "rows.ancestors", 2);
  expect_sentinel(tables_.ancestors[2 * 3 + 2], "rows.ancestors", 2);
  expect_sentinel(tables_.blocks[2], "rows.blocks", 0);
  tables_.ancestors[2 * 3 + 2] = 5;
  expect_broken("rows.ancestors", 2, "R13");
}

TEST_F(RowRules, R19MaskValuesAreZeroOrOne) {
  use_mask();
  mask(2, 127) = 2;
  expect_broken("rows.mask", 2, "R19");
  mask(2, 127) = 255;
  expect_broken("rows.mask", 2, "R19");
}

TEST_F(RowRules, R20AMaskIsOneByOneByRowsByColumns) {
  use_mask();
  DeviceRowTables rows = upload_tables(*device_, tables_);
  const Tensor q = device_->tensor(DType::f32, {6, 2, 8}), out = device_->tensor(DType::f32, {6, 2, 8});
  for (const ConstView& wrong : {rows.rows.mask.reshaped({1, 2, 3, 128}), rows.rows.mask.reshaped({6, 128})}) {
    rows.rows.mask = wrong;
    EXPECT_THAT(
        [&] {
          device_->attention(q, {kv_k_, kv_v_}, rows.rows, 1.0f, out);
        },
        testing::ThrowsMessage<std::logic_error>(testing::HasSubstr("attention: rows.mask is u8")));
  }
}

TEST_F(RowRules, R21MaskColumnsAreAMultipleOf128AndPaddingIsHidden) {
  use_mask();
  mask(5, 12) = 0;  // behind the block table
  expect_broken("rows.mask", 5, "R21");
  mask(5, 12) = 1;
  mask(4, 5) = 0;  // position 5 of sequence 1 is slot 1, which nobody wrote
  expect_broken("rows.mask", 4, "R21");
  tables_.mask_columns = 64;
  tables_.mask.assign(6 * 64, 0);
  expect_violation([&] { attend(); }, {"attention", "rows.mask"}, "R21");
}

TEST_F(RowRules, R22NoRowIsHiddenCompletely) {
  use_mask();
  for (int c = 0; c < 128; ++c) mask(3, c) = 1;
  expect_broken("rows.mask", 3, "R22");
}

TEST_F(RowRules, R23TheMaskSaysTheSameAsTheLists) {
  use_mask();
  mask(1, 7) = 0;  // row 1 would see its child
  expect_broken("rows.mask", 1, "R23");
  mask(1, 7) = 1;
  mask(1, 5) = 1;  // and this hides its parent
  expect_broken("rows.mask", 1, "R23");
  mask(1, 5) = 0;
  mask(1, 6) = 1;  // and this the row itself
  expect_broken("rows.mask", 1, "R23");
  mask(1, 6) = 0;
  mask(5, 0) = 0;  // before the window
  expect_broken("rows.mask", 5, "R23");
}

TEST_F(RowRules, R23AncestorsAreListedInTheOrderOfTheMask) {
  use_mask();
  std::swap(tables_.ancestors[2 * 3], tables_.ancestors[2 * 3 + 1]);
  expect_broken("rows.mask", 2, "R23");
}

TEST_F(RowRules, R23AContextIsARangeInsideTheBlockTable) {
  tables_.begin[3] = 13;
  expect_broken("rows.begin", 3, "R23");
  tables_.begin[3] = 0;
  tables_.end[3] = 13;
  expect_broken("rows.end", 3, "R23");
}

TEST_F(RowRules, AWindowMayBeginInsideTheTree) {
  tables_.begin = {2, 3, 6, 4, 0, 1};  // row 2 sees its parent and itself
  tables_.ancestor_count[2] = 1;
  tables_.ancestors[2 * 3] = 6;
  tables_.ancestors[2 * 3 + 1] = 0;
  attend();
  use_mask();
  for (const auto& [row, hidden] : std::vector<std::pair<int, int>>{{0, 2}, {1, 3}, {2, 6}, {3, 4}})
    for (int c = 0; c < hidden; ++c) mask(static_cast<std::size_t>(row), c) = 1;
  attend();
  attend(true);
  mask(2, 5) = 0;  // what the window hides
  expect_broken("rows.mask", 2, "R23");
}

TEST_F(RowRules, R23AContextNeverContainsTheRowItself) {
  tables_.end[4] = 3;
  expect_broken("rows.end", 4, "R23");
}

TEST_F(RowRules, R23ARowSeesNoSlotTwice) {
  tables_.ancestors[2 * 3 + 1] = 5;  // an ancestor twice
  expect_broken("rows.ancestors", 2, "R23");
  tables_.ancestors[2 * 3 + 1] = 13;  // one of the context
  expect_broken("rows.ancestors", 2, "R23");
  tables_.ancestors[2 * 3 + 1] = 7;  // itself
  expect_broken("rows.ancestors", 2, "R23");
  tables_.ancestors[2 * 3 + 1] = 6;
  tables_.blocks[1] = 3;  // positions 0 and 4 in one slot
  expect_broken("rows.blocks", 0, "R23");
}

TEST_F(RowRules, R23ARowSeesOnlyWrittenSlots) {
  tables_.ancestors[2 * 3 + 1] = 8;
  expect_broken("rows.ancestors", 2, "R23");
  tables_.ancestors[2 * 3 + 1] = 6;
  tables_.slot[5] = 9;
  expect_broken("rows.slot", 5, "R23");
  tables_.slot[5] = 23;
  device_->discard(kv_v_.view.rows(5, 1));
  expect_broken("rows.blocks", 4, "R23");
}

TEST_F(RowRules, R32AscendMasksAreAsWideAsTheBlockTable) {
  const auto ascend = make_checked_device(make_reference_device(), {.profile = CheckedProfile::ascend});
  const AttentionScenario scenario({.rows = 2, .sequences = 1, .longest_prefix = 4, .block_size = 128, .dim = 8}, 1);
  run_attention(*ascend, scenario, DType::f16, AttentionForm::mask, 1);
  HostRowTables tables = scenario.tables(scenario.place_blocks(1), true);
  tables.blocks.push_back(0);
  tables.blocks_per_sequence = 2;
  const ScenarioMemory memory = espalier::write_keys(*ascend, scenario, DType::f16, scenario.place_blocks(1));
  const DeviceRowTables rows = upload_tables(*ascend, tables);
  const Tensor q = ascend->tensor(DType::f32, {2, 6, 8}), out = ascend->tensor(DType::f32, {2, 6, 8});
  upload<float>(*ascend, scenario.query, q);
  expect_violation([&] { ascend->attention(q, memory.views(), rows.rows, 1.0f, out); }, {"attention", "rows.mask"},
                   "R32");
}

// --- mutation -------------------------------------------------------------------------------------------------------

// Whether the contract allows these tables, in the plainest words: sets of slots, one row after the other.
bool is_legal(const HostRowTables& t, std::int64_t blocks, std::int64_t block_size,
              const std::set<std::int64_t>& written) {
  const auto in = [](std::int64_t x, std::int64_t extent) { return x >= 0 && x < extent; };
  const std::int64_t slots = blocks * block_size, positions = t.blocks_per_sequence * block_size;
  const std::set<std::int32_t> distinct(t.slot.begin(), t.slot.end());
  if (distinct.size() != t.slot.size()) return false;
  for (std::int32_t block : t.blocks)
    if (!in(block, blocks)) return false;
  for (std::uint8_t value : t.mask)
    if (value > 1) return false;
  for (std::size_t r = 0; r < t.slot.size(); ++r) {
    if (!in(t.slot[r], slots) || !in(t.sequence[r], t.sequences)) return false;
    if (!in(t.begin[r], positions + 1) || !in(t.end[r], positions + 1)) return false;
    if (!in(t.ancestor_count[r], t.ancestor_columns + 1)) return false;
    const auto slot_at = [&](std::int64_t p) {
      const std::int64_t entry = t.sequence[r] * t.blocks_per_sequence + p / block_size;
      return t.blocks[static_cast<std::size_t>(entry)] * block_size + p % block_size;
    };
    std::vector<std::int64_t> keys;
    for (std::int64_t p = t.begin[r]; p < t.end[r]; ++p) keys.push_back(slot_at(p));
    for (std::int64_t i = 0; i < t.ancestor_columns; ++i) {
      const std::int64_t ancestor =
          t.ancestors[r * static_cast<std::size_t>(t.ancestor_columns) + static_cast<std::size_t>(i)];
      if (!in(ancestor, slots)) return false;
      if (i < t.ancestor_count[r]) keys.push_back(ancestor);
      if (i >= t.ancestor_count[r] && ancestor != 0) return false;
    }
    keys.push_back(t.slot[r]);
    const std::set<std::int64_t> once(keys.begin(), keys.end());
    if (once.size() != keys.size()) return false;
    if (!std::includes(written.begin(), written.end(), once.begin(), once.end())) return false;
    if (t.mask_columns == 0) continue;
    std::vector<std::int64_t> shown;
    for (std::int64_t c = 0; c < t.mask_columns; ++c)
      if (t.mask[r * static_cast<std::size_t>(t.mask_columns) + static_cast<std::size_t>(c)] == 0)
        shown.push_back(c < positions ? slot_at(c) : -1);
    if (shown != keys) return false;
  }
  return true;
}

// One entry becomes another value: a near miss, an index of something else, or far outside.
void mutate(HostRowTables& t, RandomValues& random) {
  std::vector<std::int32_t>* const candidates[] = {&t.slot,           &t.sequence,  &t.begin, &t.end,
                                                   &t.ancestor_count, &t.ancestors, &t.blocks};
  if (t.mask_columns > 0 && random.one_in(3)) {
    std::uint8_t& value = t.mask[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(t.mask.size())))];
    value = random.one_in(8) ? static_cast<std::uint8_t>(random.below(256)) : value ^ 1;
    return;
  }
  std::vector<std::int32_t>& table = *candidates[random.below(std::size(candidates))];
  std::int32_t& entry = table[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(table.size())))];
  switch (random.below(3)) {
    case 0: entry += random.one_in(2) ? 1 : -1; break;
    case 1: entry = static_cast<std::int32_t>(random.below(26)); break;
    default: entry = static_cast<std::int32_t>(random.between(-100, 100)) * (1 << 24); break;
  }
}

TEST_F(RowRules, AMutatedTableIsRefusedExactlyWhenTheContractForbidsIt) {
  const HostRowTables legal = tables_;
  RandomValues random(77);
  int refused = 0, harmless = 0;
  for (int i = 0; i < 3000; ++i) {
    tables_ = legal;
    if (i % 2 == 1) use_mask();
    mutate(tables_, random);
    if (is_legal(tables_, 6, 4, written_)) {
      ++harmless;
      ASSERT_NO_THROW(attend()) << "mutation " << i;
    } else {
      ++refused;
      ASSERT_THROW(attend(), RuleViolation) << "mutation " << i;
    }
  }
  EXPECT_GT(refused, 1500);
  EXPECT_GT(harmless, 50);
}

}  // namespace
}  // namespace espalier
