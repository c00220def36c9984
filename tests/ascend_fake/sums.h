// Sums in an order (F59). Seed 0 gives sums that depend on neither the number of rows nor the row, and, over keys, not
// on the order of the terms either, so that a key may lie in any slot. Other seeds cut and turn every row's sums
// otherwise.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ascend_fake {

struct SumOrder {
  bool order_free = true;
  int parts = 1;  // the sum is cut into so many pieces, each summed alone
  bool backwards = false;

  static SumOrder seeded(uint64_t seed, int64_t row, int64_t rows);
};

// Sum of a[i] * b[i], in float with 16 lanes.
float dot(std::span<const float> a, std::span<const float> b, const SumOrder& order);
// The same, for sums over keys: with seed 0 whatever the order of the terms, and zeros among them change nothing.
float dot_over_keys(std::span<const float> a, std::span<const float> b, const SumOrder& order);
float sum(std::span<const float> terms, const SumOrder& order);
// out[d] = sum over j of weights[j] * rows[j][d].
void weighted_rows(std::span<const float> weights, const std::vector<const float*>& rows, const SumOrder& order,
                   std::span<float> out);

}  // namespace ascend_fake
