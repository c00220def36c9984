// Which bytes of a buffer have been written: one bit per byte, with range operations that work a word at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

class WrittenMap {
 public:
  explicit WrittenMap(std::size_t bytes) : words_((bytes + 63) / 64), bytes_(bytes) {}

  // begin <= end <= size of the buffer, for all three.
  void mark(std::size_t begin, std::size_t end);
  void clear(std::size_t begin, std::size_t end);
  // The first byte of [begin, end) that nobody wrote, or end.
  std::size_t first_unwritten(std::size_t begin, std::size_t end) const;

 private:
  std::vector<std::uint64_t> words_;
  std::size_t bytes_;
};

}  // namespace espalier
