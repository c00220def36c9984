// Which rows of an attention call are computed together, and which tiles of ordinals they see. Rows that follow each
// other in one sequence share the context they see: a group reads it once. Reused from call to call, so that a steady
// decoding step allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cpu/kernels.h"
#include "device/device.h"

namespace espalier::cpu {

class AttentionPlan {
 public:
  // Reads the tables; block_size is that of the KV memory. With a mask, its shown columns are the keys of a row.
  void build(const RowTables& rows, std::int64_t row_count, std::int64_t block_size);

  // Groups without q, out and sums: those belong to whoever runs them.
  std::span<AttentionRows> groups() { return groups_; }
  // The first row of a group in the call.
  std::int64_t first_row(std::size_t group) const { return first_rows_[group]; }

 private:
  void list_keys(const RowTables& rows, std::int64_t r);
  void list_shown_keys(const RowTables& rows, std::int64_t r, std::int64_t block_size);
  void join_context(const RowTables& rows, std::int64_t r, std::int64_t block_size);
  void cut_into_groups(const RowTables& rows);
  void add_group(std::int64_t first, std::int64_t end, const std::int32_t* blocks);

  std::vector<AttentionRow> rows_;
  std::vector<std::size_t> tail_begin_;  // in tails_, by row
  std::vector<std::int32_t> tails_;
  std::vector<AttentionRows> groups_;
  std::vector<std::int64_t> first_rows_;
};

}  // namespace espalier::cpu
