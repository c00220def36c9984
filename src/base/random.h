// Randomness as a value: the same seed and position give the same number, whatever was drawn before, on any machine.
#pragma once

#include <cstdint>

namespace espalier {

// The finaliser of SplitMix64: a bijection of 64-bit words in which every input bit moves every output bit.
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// u = hash(seed, position) in [0, 1), a multiple of 2^-53.
constexpr double uniform(std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t bits = mix64(mix64(seed + 0x9e3779b97f4a7c15ull) + 0x9e3779b97f4a7c15ull * (position + 1));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace espalier
