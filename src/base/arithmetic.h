// The contract of docs/arithmetic.md as a number, and what host code shares of it.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace espalier {

// Rises with every change of the bits that the contract fixes. What was recorded under another number is refused:
// its tokens and features need not come out again.
inline constexpr int kArithmetic = 2;

// Throws InputError unless the record at `where` was made under this number. Records without any (null) have the first.
void check_arithmetic(std::string_view where, const nlohmann::json& recorded);

// Sums over a vocabulary: element j goes to lane j mod 256.
inline constexpr std::size_t kVocabularyLanes = 256;

// p[j] += p[j + n/2], p[j] += p[j + n/4], ..., p[0] + p[1].
template <typename T, std::size_t n>
T add_halves(T (&lane)[n]) {
  for (std::size_t half = n / 2; half >= 1; half /= 2)
    for (std::size_t j = 0; j < half; ++j) lane[j] += lane[j + half];
  return lane[0];
}

}  // namespace espalier
