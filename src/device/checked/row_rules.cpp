#include "device/checked/row_rules.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "device/device.h"

namespace espalier {
namespace {

std::int32_t at(const std::vector<std::int32_t>& table, std::int64_t i) {
  return table[static_cast<std::size_t>(i)];
}

// The tables of one call, once their entries are known to be in range.
class RowRules {
 public:
  RowRules(std::string_view op, const HostRowTables& tables, const KvState& kv)
      : op_(op),
        tables_(tables),
        kv_(kv),
        seen_by_(static_cast<std::size_t>(kv.slots()), -1),
        written_(static_cast<std::size_t>(kv.slots())) {}

  void check() {
    check_slots(op_, "rows.slot", tables_.slot, kv_.slots());
    for (std::int64_t s = 0; s < tables_.sequences; ++s)
      for (std::int64_t b = 0; b < tables_.blocks_per_sequence; ++b)
        check_index({op_, "rows.blocks", s}, "block", at(tables_.blocks, s * tables_.blocks_per_sequence + b),
                    kv_.blocks);
    for (std::int64_t r = 0; r < tables_.rows(); ++r) {
      check_entries(r);
      collect_visible(r);
      if (tables_.mask_columns > 0) check_mask(r);
    }
  }

 private:
  std::int64_t positions() const { return tables_.blocks_per_sequence * kv_.block_size; }

  std::int64_t slot_of(std::int64_t r, std::int64_t position) const {
    const std::int64_t entry = at(tables_.sequence, r) * tables_.blocks_per_sequence + position / kv_.block_size;
    return at(tables_.blocks, entry) * kv_.block_size + position % kv_.block_size;
  }

  [[noreturn]] void fail(std::string_view argument, std::int64_t r, std::string_view rule,
                         const std::string& reason) const {
    throw RuleViolation({op_, argument, r}, rule, reason);
  }

  void check_entries(std::int64_t r) const {
    const std::int32_t begin = at(tables_.begin, r), end = at(tables_.end, r);
    check_index({op_, "rows.sequence", r}, "sequence", at(tables_.sequence, r), tables_.sequences);
    check_index({op_, "rows.begin", r}, "begin", begin, positions() + 1, "R23");
    check_index({op_, "rows.end", r}, "end", end, positions() + 1, "R23");
    const std::int32_t count = at(tables_.ancestor_count, r);
    check_index({op_, "rows.ancestor_count", r}, "count", count, tables_.ancestor_columns + 1);
    for (std::int64_t i = 0; i < tables_.ancestor_columns; ++i) {
      const std::int32_t ancestor = at(tables_.ancestors, r * tables_.ancestor_columns + i);
      check_index({op_, "rows.ancestors", r}, "slot", ancestor, kv_.slots());
      if (i >= count && ancestor != 0)
        fail("rows.ancestors", r, "R13", fmt::format("unused entry {} is {}, expected 0", i, ancestor));
    }
  }

  // The slots row r sees, in the order of the contract, each once and all written.
  void collect_visible(std::int64_t r) {
    const std::int64_t own = at(tables_.slot, r);
    visible_.clear();
    for (std::int64_t p = at(tables_.begin, r); p < at(tables_.end, r); ++p) {
      const std::int64_t slot = slot_of(r, p);
      if (slot == own) fail("rows.end", r, "R23", fmt::format("position {} of the context is the row's own slot", p));
      see(r, slot, "rows.blocks");
    }
    for (std::int64_t i = 0; i < at(tables_.ancestor_count, r); ++i) {
      const std::int64_t slot = at(tables_.ancestors, r * tables_.ancestor_columns + i);
      if (slot == own) fail("rows.ancestors", r, "R23", fmt::format("ancestor {} is the row's own slot", i));
      see(r, slot, "rows.ancestors");
    }
    see(r, own, "rows.slot");
  }

  void see(std::int64_t r, std::int64_t slot, std::string_view argument) {
    if (seen_by_[static_cast<std::size_t>(slot)] == r)
      fail(argument, r, "R23", fmt::format("the row sees slot {} twice", slot));
    seen_by_[static_cast<std::size_t>(slot)] = r;
    if (!is_written(slot)) fail(argument, r, "R23", fmt::format("the row sees slot {}, which nobody wrote", slot));
    visible_.push_back(slot);
  }

  // Asked once per slot: a long prefill looks at the same slots for every row.
  bool is_written(std::int64_t slot) {
    std::optional<bool>& known = written_[static_cast<std::size_t>(slot)];
    if (!known) known = kv_.written(slot);
    return *known;
  }

  void check_mask(std::int64_t r) {
    const std::uint8_t* const hidden = tables_.mask.data() + r * tables_.mask_columns;
    std::size_t shown = 0;
    for (std::int64_t c = 0; c < tables_.mask_columns; ++c) {
      if (hidden[c] == 1) continue;
      if (hidden[c] != 0) fail("rows.mask", r, "R19", fmt::format("column {} holds {}, expected 0 or 1", c, hidden[c]));
      check_shown(r, c, shown++);
    }
    if (shown == 0) fail("rows.mask", r, "R22", "all columns are hidden");
    if (shown < visible_.size())
      fail("rows.mask", r, "R23", fmt::format("hides slot {}, key {} of the row", visible_[shown], shown));
  }

  // Column c is the i-th that row r shows.
  void check_shown(std::int64_t r, std::int64_t c, std::size_t i) {
    if (c >= positions())
      fail("rows.mask", r, "R21", fmt::format("shows padding column {} of a table for {} positions", c, positions()));
    const std::int64_t slot = slot_of(r, c);
    if (!is_written(slot))
      fail("rows.mask", r, "R21", fmt::format("column {} shows slot {}, which nobody wrote", c, slot));
    if (i >= visible_.size() || visible_[i] != slot)
      fail("rows.mask", r, "R23", fmt::format("column {} shows slot {}, which is not key {} of the row", c, slot, i));
  }

  std::string_view op_;
  const HostRowTables& tables_;
  const KvState& kv_;
  std::vector<std::int64_t> seen_by_;         // [slots] the last row that saw a slot
  std::vector<std::optional<bool>> written_;  // [slots]
  std::vector<std::int64_t> visible_;         // of the row being checked
};

}  // namespace

void check_index(const CallSite& site, std::string_view what, std::int64_t index, std::int64_t extent,
                 std::string_view rule) {
  if (index < 0) throw RuleViolation(site, "R13", fmt::format("{} {} is negative", what, index));
  if (index >= extent)
    throw RuleViolation(site, rule, fmt::format("{} {}, expected one in [0, {})", what, index, extent));
}

void check_slots(std::string_view op, std::string_view argument, const std::vector<std::int32_t>& slots,
                 std::int64_t extent) {
  std::vector<bool> taken(static_cast<std::size_t>(extent));
  for (std::size_t r = 0; r < slots.size(); ++r) {
    const CallSite site{op, argument, static_cast<std::int64_t>(r)};
    check_index(site, "slot", slots[r], extent, "R12");
    if (taken[static_cast<std::size_t>(slots[r])])
      throw RuleViolation(site, "R12", fmt::format("slot {} is written twice in one call", slots[r]));
    taken[static_cast<std::size_t>(slots[r])] = true;
  }
}

void check_row_tables(std::string_view op, const HostRowTables& tables, const KvState& kv) {
  if (tables.mask_columns % kMaskColumns != 0)
    throw RuleViolation({op, "rows.mask"}, "R21",
                        fmt::format("{} columns, expected a multiple of {}", tables.mask_columns, kMaskColumns));
  RowRules(op, tables, kv).check();
}

}  // namespace espalier
