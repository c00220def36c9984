// Trees that pad a round which stays on the device (resident_rounds.h), so that rounds of fewer answers share its
// recording. Each is a root that nothing is guessed for; its rows lie in blocks of its own, among those that are there
// for padding.
#pragma once

#include <cstdint>
#include <span>

#include "cache/block_tables.h"
#include "device/device.h"

namespace espalier {

// How many trees a round of so many is given, of up to `most`.
std::int64_t trees_of_round(const Device& device, std::int64_t trees, std::int64_t most);
// The slots that rounds of up to `most` trees are padded with, where each may have up to `rows` rows.
std::int64_t padding_tree_slots(const Device& device, std::int64_t most, std::int64_t rows, std::int64_t block_size);

class PaddingTrees {
 public:
  // Of up to `rows` rows each. The tables must outlive this.
  PaddingTrees(const BlockTables& tables, std::int64_t rows) : tables_(&tables), blocks_(tables.blocks_for(rows)) {}

  // Of padding tree i.
  std::span<const std::int32_t> blocks(std::int64_t i) const;
  std::int32_t slot(std::int64_t i, std::int64_t place) const;

 private:
  const BlockTables* tables_;
  std::int64_t blocks_;  // of each
};

}  // namespace espalier
