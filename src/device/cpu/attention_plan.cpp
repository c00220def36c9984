#include "device/cpu/attention_plan.h"

#include <algorithm>
#include <cstring>

#include "device/host_views.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kTileRowsOfAttention = 16;  // more would push keys and sums out of the first-level cache

std::int64_t whole_panels(std::int64_t n) {
  return (n + kPanel - 1) / kPanel * kPanel;
}

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
    tail_begin_.push_back(static_cast<std::int64_t>(tails_.size()));
    if (rows.mask.empty()) {
      add_listed_row(rows, r);
    } else {
      add_masked_row(rows, r, block_size);
    }
    rows_.back().tail_count = static_cast<std::int64_t>(tails_.size()) - tail_begin_.back();
  }
  for (std::size_t r = 0; r < rows_.size(); ++r) rows_[r].tail = tails_.data() + tail_begin_[r];
  cut_into_tiles(rows);
}

void AttentionPlan::add_listed_row(const RowTables& rows, std::int64_t r) {
  rows_.push_back({.begin = ints(rows.begin)[r], .end = ints(rows.end)[r], .tail = nullptr, .tail_count = 0});
  const std::int32_t* const ancestors = ints(rows.ancestors, r);
  tails_.insert(tails_.end(), ancestors, ancestors + ints(rows.ancestor_count)[r]);
  tails_.push_back(ints(rows.slot)[r]);
}

void AttentionPlan::add_masked_row(const RowTables& rows, std::int64_t r, std::int64_t block_size) {
  const std::int64_t columns = rows.mask.dim(3);
  const auto* const hidden = reinterpret_cast<const std::uint8_t*>(rows.mask.data()) + r * columns;
  const std::int32_t* const blocks = ints(rows.blocks, ints(rows.sequence)[r]);
  const std::int64_t begin = find(hidden, 0, columns, 0), end = find(hidden, begin, columns, 1);
  rows_.push_back({.begin = begin, .end = end, .tail = nullptr, .tail_count = 0});
  for (std::int64_t c = find(hidden, end, columns, 0); c < columns; c = find(hidden, c + 1, columns, 0))
    tails_.push_back(static_cast<std::int32_t>(blocks[c / block_size] * block_size + c % block_size));
}

void AttentionPlan::cut_into_tiles(const RowTables& rows) {
  tiles_.clear();
  first_rows_.clear();
  const auto count = static_cast<std::int64_t>(rows_.size());
  for (std::int64_t first = 0; first < count;) {
    const std::int32_t sequence = ints(rows.sequence)[first];
    std::int64_t end = first + 1;
    while (end < count && end < first + kTileRowsOfAttention && ints(rows.sequence)[end] == sequence) ++end;
    finish_tile(first, end, ints(rows.blocks, sequence));
    first = end;
  }
}

// Positions become columns behind the first one that any row of the tile sees.
void AttentionPlan::finish_tile(std::int64_t first, std::int64_t end, const std::int32_t* blocks) {
  const std::span rows(rows_.data() + first, static_cast<std::size_t>(end - first));
  std::int64_t least = INT64_MAX, most = 0, longest_tail = 0;
  for (const AttentionRow& row : rows) {
    longest_tail = std::max(longest_tail, row.tail_count);
    if (row.begin >= row.end) continue;
    least = std::min(least, row.begin);
    most = std::max(most, row.end);
  }
  if (most == 0) least = 0;
  for (AttentionRow& row : rows) {
    const bool sees_context = row.begin < row.end;
    row.begin = sees_context ? row.begin - least : 0;
    row.end = sees_context ? row.end - least : 0;
  }
  AttentionTile tile;
  tile.rows = rows.data();
  tile.row_count = end - first;
  tile.blocks = blocks;
  tile.first = least;
  tile.columns = most - least;
  tile.tail_column = whole_panels(tile.columns);
  tile.score_stride = tile.tail_column + whole_panels(longest_tail);
  tiles_.push_back(tile);
  first_rows_.push_back(first);
}

}  // namespace espalier::cpu
