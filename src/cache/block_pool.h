// The blocks that nobody owns. A stack: the block given back last is taken first, while its memory is still warm.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"

namespace espalier {

class BlockPool {
 public:
  // Blocks [first, first + count), all free.
  BlockPool(std::int64_t first, std::int64_t count) {
    free_.reserve(static_cast<std::size_t>(count));
    for (std::int64_t block = first + count - 1; block >= first; --block)
      free_.push_back(static_cast<std::int32_t>(block));
  }

  std::int64_t free() const { return static_cast<std::int64_t>(free_.size()); }
  std::span<const std::int32_t> free_blocks() const { return free_; }

  // One is free.
  std::int32_t take() {
    check(free() > 0, "BlockPool: a block of none");
    const std::int32_t taken = free_.back();
    free_.pop_back();
    return taken;
  }

  // Blocks that were taken. There is always room for them, so this cannot fail.
  void give_back(std::span<const std::int32_t> blocks) noexcept {
    free_.insert(free_.end(), blocks.rbegin(), blocks.rend());
  }

 private:
  std::vector<std::int32_t> free_;  // the last one is taken first
};

}  // namespace espalier
