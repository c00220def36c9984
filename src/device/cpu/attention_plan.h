// Which rows of an attention call are computed together, and where their scores lie. Rows that follow each other in one
// sequence share the context they see: a tile reads it once. Reused from call to call, so that a steady decoding step
// allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cpu/kernels.h"
#include "device/device.h"

namespace espalier::cpu {

class AttentionPlan {
 public:
  // Reads the tables; block_size is that of the KV memory. With a mask, its shown columns are the keys of a row: the
  // first run of them is the context, the others form the tail.
  void build(const RowTables& rows, std::int64_t row_count, std::int64_t block_size);

  // Tiles without q, out, scores and valid: those belong to whoever runs them.
  std::span<AttentionTile> tiles() { return tiles_; }
  // The first row of a tile in the call.
  std::int64_t first_row(std::size_t tile) const { return first_rows_[tile]; }

 private:
  void add_listed_row(const RowTables& rows, std::int64_t r);
  void add_masked_row(const RowTables& rows, std::int64_t r, std::int64_t block_size);
  void cut_into_tiles(const RowTables& rows);
  void finish_tile(std::int64_t first, std::int64_t end, const std::int32_t* blocks);

  std::vector<AttentionRow> rows_;  // columns are logical positions until their tile is finished
  std::vector<std::int64_t> tail_begin_;
  std::vector<std::int32_t> tails_;
  std::vector<AttentionTile> tiles_;
  std::vector<std::int64_t> first_rows_;
};

}  // namespace espalier::cpu
