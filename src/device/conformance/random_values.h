// Random inputs for device tests: the same on every machine for a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace espalier {

class RandomValues {
 public:
  explicit RandomValues(std::uint64_t seed) : state_(seed) {}

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(static_cast<unsigned __int128>(bits()) * static_cast<std::uint64_t>(n) >> 64);
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  // Magnitudes from 2^-6 to 2^2, so that the order of a sum shows in its last bits.
  float value();
  std::vector<float> values(std::int64_t n);
  std::vector<std::uint8_t> bytes(std::int64_t n);
  std::vector<std::int32_t> permutation(std::int64_t n);
  // Rows of a weight in any linear type: random blocks with finite scales.
  std::vector<std::byte> weight(DType type, std::int64_t outputs, std::int64_t inputs);

 private:
  // SplitMix64 (Steele, Lea and Flood, 2014): tests draw hundreds of millions of these.
  std::uint64_t bits() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  void weight_block(DType type, std::byte* block);

  std::uint64_t state_;
};

}  // namespace espalier
