#include "device/cpu/attention_plan.h"

#include <algorithm>
#include <cstring>

#include "device/host_views.h"

namespace espalier::cpu {
namespace {

static_assert(kTileKeys == kKeyTile);

constexpr std::int64_t kGroupRows = 16;  // more would push keys and scores out of the first-level cache

// The first column >= begin that holds `value`, or `columns`.
std::int64_t find(const std::uint8_t* hidden, std::int64_t begin, std::int64_t columns, int value) {
  if (begin >= columns) return columns;
  const void* const found = std::memchr(hidden + begin, value, static_cast<std::size_t>(columns - begin));
  return found == nullptr ? columns : static_cast<const std::uint8_t*>(found) - hidden;
}

}  // namespace

void AttentionPlan::build(const RowTables& rows, std::int64_t row_count, std::int64_t block_size) {
  rows_.clear();
  tail_begin_.clear();
  tails_.clear();
  for (std::int64_t r = 0; r < row_count; ++r) {
    tail_begin_.push_back(tails_.size());
    if (rows.mask.empty()) {
      list_keys(rows, r);
    } else {
      list_shown_keys(rows, r, block_size);
    }
    join_context(rows, r, block_size);
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) rows_[r].tail = tails_.data() + tail_begin_[r];
  cut_into_groups(rows);
}

void AttentionPlan::list_keys(const RowTables& rows, std::int64_t r) {
  const std::int64_t begin = ints(rows.begin)[r];
  rows_.push_back({.begin = begin, .end = std::max<std::int64_t>(begin, ints(rows.end)[r])});
  const std::int32_t* const ancestors = ints(rows.ancestors, r);
  tails_.insert(tails_.end(), ancestors, ancestors + ints(rows.ancestor_count)[r]);
  tails_.push_back(ints(rows.slot)[r]);
}

// Columns are ordinals only as far as the row sees all of them from its `begin` on.
void AttentionPlan::list_shown_keys(const RowTables& rows, std::int64_t r, std::int64_t block_size) {
  const std::int64_t columns = rows.mask.dim(3), begin = ints(rows.begin)[r];
  const auto* const hidden = reinterpret_cast<const std::uint8_t*>(rows.mask.data()) + r * columns;
  const std::int32_t* const blocks = ints(rows.blocks, ints(rows.sequence)[r]);
  const std::int64_t first = find(hidden, 0, columns, 0);
  const std::int64_t end = first == begin ? find(hidden, begin, columns, 1) : begin;
  rows_.push_back({.begin = begin, .end = end});
  for (std::int64_t c = find(hidden, first == begin ? end : first, columns, 0); c < columns;
       c = find(hidden, c + 1, columns, 0))
    tails_.push_back(static_cast<std::int32_t>(blocks[c / block_size] * block_size + c % block_size));
}

// Keys behind the context that lie where the next positions lie belong to it: a row of a prompt, the trunk of a tree.
void AttentionPlan::join_context(const RowTables& rows, std::int64_t r, std::int64_t block_size) {
  AttentionRow& row = rows_.back();
  const std::int32_t* const blocks = ints(rows.blocks, ints(rows.sequence)[r]);
  const std::int64_t positions = rows.blocks.dim(1) * block_size;
  std::size_t joined = tail_begin_.back();
  for (; joined < tails_.size() && row.end < positions; ++joined, ++row.end)
    if (tails_[joined] != blocks[row.end / block_size] * block_size + row.end % block_size) break;
  tail_begin_.back() = joined;
  row.tail_begin = row.end;
  row.tail_end = row.end + static_cast<std::int64_t>(tails_.size() - joined);
}

void AttentionPlan::cut_into_groups(const RowTables& rows) {
  groups_.clear();
  first_rows_.clear();
  const auto count = static_cast<std::int64_t>(rows_.size());
  for (std::int64_t first = 0; first < count;) {
    const std::int32_t sequence = ints(rows.sequence)[first];
    std::int64_t end = first + 1;
    while (end < count && end < first + kGroupRows && ints(rows.sequence)[end] == sequence) ++end;
    add_group(first, end, ints(rows.blocks, sequence));
    first = end;
  }
}

void AttentionPlan::add_group(std::int64_t first, std::int64_t end, const std::int32_t* blocks) {
  const std::span rows(rows_.data() + first, static_cast<std::size_t>(end - first));
  std::int64_t least = INT64_MAX, most = 0;
  for (const AttentionRow& row : rows) {
    least = std::min(least, row.begin);
    most = std::max(most, row.tail_end);
  }
  AttentionRows group;
  group.rows = rows.data();
  group.row_count = end - first;
  group.blocks = blocks;
  group.first_tile = least / kTileKeys;
  group.tiles = (most + kTileKeys - 1) / kTileKeys - group.first_tile;
  groups_.push_back(group);
  first_rows_.push_back(first);
}

}  // namespace espalier::cpu
