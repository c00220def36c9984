// The blocks of a pool, simulated, for tests of the scheduler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

// Blocks as tables hold them. A full block is published under what its tokens are, which is a stream and its place in
// it; nobody holds a cached block. Eviction takes the last places first: never a block before those that follow it.
class SimulatedBlocks {
 public:
  explicit SimulatedBlocks(std::int64_t count) : blocks_(static_cast<std::size_t>(count)), free_(count) {}

  std::int64_t free() const { return free_; }
  std::int64_t evictable() const { return evictable_; }
  std::int64_t references(int block) const { return at(block).references; }
  bool published(int block) const { return at(block).stream >= 0; }

  int find(int stream, std::int64_t place) const {
    const std::size_t entry = entry_of(stream, place);
    return entry < index_.size() ? index_[entry] : -1;
  }
  void hold(int block) {
    if (at(block).references++ == 0 && published(block)) --evictable_;
  }
  void let_go(int block) {
    if (--at(block).references > 0) return;
    ++(published(block) ? evictable_ : free_);
  }
  // -1: there is none.
  int take() {
    if (free_ == 0 && !evict()) return -1;
    const auto block = std::ranges::find_if(blocks_, [](const Block& b) { return b.references == 0 && b.stream < 0; });
    block->references = 1;
    --free_;
    return static_cast<int>(block - blocks_.begin());
  }
  void publish(int block, int stream, std::int64_t place) {
    if (published(block) || find(stream, place) >= 0) return;
    const std::size_t entry = entry_of(stream, place);
    if (entry >= index_.size()) index_.resize(entry + 1, -1);
    index_[entry] = block;
    at(block).stream = stream;
    at(block).place = place;
  }

 private:
  struct Block {
    int references = 0;
    int stream = -1;  // not published
    std::int64_t place = 0;
  };
  Block& at(int block) { return blocks_[static_cast<std::size_t>(block)]; }
  const Block& at(int block) const { return blocks_[static_cast<std::size_t>(block)]; }

  static constexpr std::int64_t kPlaces = 32;  // of a stream, at most
  static std::size_t entry_of(int stream, std::int64_t place) {
    return static_cast<std::size_t>(stream * kPlaces + place);
  }

  bool evict() {
    Block* last = nullptr;
    for (Block& block : blocks_)
      if (block.references == 0 && block.stream >= 0 && (last == nullptr || block.place > last->place)) last = &block;
    if (last == nullptr) return false;
    index_[entry_of(last->stream, last->place)] = -1;
    last->stream = -1;
    --evictable_;
    ++free_;
    return true;
  }

  std::vector<Block> blocks_;
  std::vector<int> index_;  // of published blocks, by stream and place; -1: none
  std::int64_t free_, evictable_ = 0;
};

}  // namespace espalier
