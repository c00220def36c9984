// Counts what every slot of a pool is used for: exactly one thing, or something was lost or given away twice. Only a
// committed slot may be held by several tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

enum class SlotUse : std::uint8_t { none, free, cached, held, speculative, padding };

class SlotCensus {
 public:
  SlotCensus(std::int64_t blocks, std::int64_t block_size)
      : block_size_(block_size), uses_(static_cast<std::size_t>(blocks * block_size), SlotUse::none) {}

  // Positions [begin, end) of a table of blocks. Throws std::logic_error with the slot and both uses if one of them has
  // a use already; what is held may be held again.
  void claim(std::span<const std::int32_t> table, std::int64_t begin, std::int64_t end, SlotUse use);
  // All positions of the table.
  void claim(std::span<const std::int32_t> table, SlotUse use);
  // The slots of these blocks that have no use so far.
  void fill(std::span<const std::int32_t> blocks, SlotUse use);
  // Throws std::logic_error with the first slot that nobody claimed.
  void check_complete() const;

 private:
  std::int64_t block_size_;
  std::vector<SlotUse> uses_;  // [slots]
};

}  // namespace espalier
