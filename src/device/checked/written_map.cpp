#include "device/checked/written_map.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace espalier {
namespace {

// The bits of word `word` that fall into [begin, end); begin < end.
std::uint64_t bits_of_word(std::size_t word, std::size_t begin, std::size_t end) {
  const std::size_t first = word * 64;
  std::uint64_t bits = ~std::uint64_t{0};
  if (begin > first) bits &= ~std::uint64_t{0} << (begin - first);
  if (end < first + 64) bits &= ~std::uint64_t{0} >> (first + 64 - end);
  return bits;
}

}  // namespace

void WrittenMap::mark(std::size_t begin, std::size_t end) {
  check(begin <= end && end <= bytes_, "written map: [{}, {}) of {}", begin, end, bytes_);
  for (std::size_t word = begin / 64; word * 64 < end; ++word) words_[word] |= bits_of_word(word, begin, end);
}

void WrittenMap::clear(std::size_t begin, std::size_t end) {
  check(begin <= end && end <= bytes_, "written map: [{}, {}) of {}", begin, end, bytes_);
  for (std::size_t word = begin / 64; word * 64 < end; ++word) words_[word] &= ~bits_of_word(word, begin, end);
}

std::size_t WrittenMap::first_unwritten(std::size_t begin, std::size_t end) const {
  check(begin <= end && end <= bytes_, "written map: [{}, {}) of {}", begin, end, bytes_);
  for (std::size_t word = begin / 64; word * 64 < end; ++word) {
    const std::uint64_t missing = ~words_[word] & bits_of_word(word, begin, end);
    if (missing != 0) return word * 64 + static_cast<std::size_t>(std::countr_zero(missing));
  }
  return end;
}

}  // namespace espalier
