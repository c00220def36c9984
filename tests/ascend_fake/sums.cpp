#include "sums.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "numbers.h"

namespace ascend_fake {
namespace {

constexpr size_t kLanes = 16;

float lanes(const float* a, const float* b, size_t count) {
  float partial[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  }
  for (size_t lane = 0; i + lane < count; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
  }
  return partial[0];
}

// A number so large that adding and taking it away rounds to a grid on which 2^20 terms as large as this one add up
// exactly. The grid depends on the largest term alone, so that the sum is the same in every order.
double grid(double largest) {
  return largest == 0 ? 0 : std::ldexp(1.5, std::ilogb(largest) + 21);
}

double on_grid(double term, double anchor) {
  return (term + anchor) - anchor;
}

// Calls each(i, lane) for i in [0, count), ascending within a lane.
template <typename Each>
void in_lanes(size_t count, const Each& each) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) each(i + lane, lane);
  }
  for (size_t lane = 0; i + lane < count; ++lane) each(i + lane, lane);
}

// In lanes, because the order makes no difference here.
template <typename Term>
float exact_sum(size_t count, const Term& term) {
  double largest[kLanes] = {};
  double probe[kLanes] = {};  // NaN or infinity, where a term is
  in_lanes(count, [&](size_t i, size_t lane) {
    const double magnitude = std::fabs(term(i));
    largest[lane] = largest[lane] < magnitude ? magnitude : largest[lane];
    probe[lane] += term(i) * 0;
  });
  const double largest_of_all = *std::max_element(largest, largest + kLanes);
  double plain = 0;
  if (std::accumulate(probe, probe + kLanes, 0.0) != 0 || !std::isfinite(largest_of_all)) {
    for (size_t i = 0; i < count; ++i) plain += term(i);
    return static_cast<float>(plain);
  }
  const double anchor = grid(largest_of_all);
  double total[kLanes] = {};
  in_lanes(count, [&](size_t i, size_t lane) { total[lane] += on_grid(term(i), anchor); });
  return static_cast<float>(std::accumulate(total, total + kLanes, 0.0));
}

// The piece that comes at this place.
struct Piece {
  size_t begin;
  size_t end;
};
Piece piece(size_t count, const SumOrder& order, int index) {
  const size_t parts = static_cast<size_t>(order.parts);
  const size_t place = static_cast<size_t>(order.backwards ? order.parts - 1 - index : index);
  return {count * place / parts, count * (place + 1) / parts};
}

}  // namespace

SumOrder SumOrder::seeded(uint64_t seed, int64_t row, int64_t rows) {
  if (seed == 0) return {};
  const uint64_t chance = mixed(seed, static_cast<uint64_t>(row), static_cast<uint64_t>(rows));
  return {.order_free = false, .parts = 1 + static_cast<int>(chance % 4), .backwards = (chance >> 8) % 2 == 1};
}

float dot(std::span<const float> a, std::span<const float> b, const SumOrder& order) {
  if (order.parts == 1) return lanes(a.data(), b.data(), a.size());
  float total = 0;
  for (int index = 0; index < order.parts; ++index) {
    const Piece part = piece(a.size(), order, index);
    total += lanes(a.data() + part.begin, b.data() + part.begin, part.end - part.begin);
  }
  return total;
}

float dot_over_keys(std::span<const float> a, std::span<const float> b, const SumOrder& order) {
  if (!order.order_free) return dot(a, b, order);
  return exact_sum(a.size(), [&](size_t i) { return static_cast<double>(a[i]) * b[i]; });
}

float sum(std::span<const float> terms, const SumOrder& order) {
  if (order.order_free) return exact_sum(terms.size(), [&](size_t i) { return static_cast<double>(terms[i]); });
  float total = 0;
  for (int index = 0; index < order.parts; ++index) {
    const Piece part = piece(terms.size(), order, index);
    float partial = 0;
    for (size_t i = part.begin; i < part.end; ++i) partial += terms[i];
    total += partial;
  }
  return total;
}

namespace {

void order_free_rows(std::span<const float> weights, const std::vector<const float*>& rows, std::span<float> out) {
  std::vector<double> anchors(out.size(), 0);
  std::vector<double> totals(out.size(), 0);
  for (size_t j = 0; j < rows.size(); ++j) {
    const double weight = weights[j];
    for (size_t d = 0; d < out.size(); ++d) anchors[d] = std::max(anchors[d], std::fabs(weight * rows[j][d]));
  }
  for (double& anchor : anchors) anchor = grid(anchor);
  for (size_t j = 0; j < rows.size(); ++j) {
    const double weight = weights[j];
    for (size_t d = 0; d < out.size(); ++d) totals[d] += (weight * rows[j][d] + anchors[d]) - anchors[d];
  }
  for (size_t d = 0; d < out.size(); ++d) out[d] = static_cast<float>(totals[d]);
}

}  // namespace

void weighted_rows(std::span<const float> weights, const std::vector<const float*>& rows, const SumOrder& order,
                   std::span<float> out) {
  if (order.order_free) return order_free_rows(weights, rows, out);
  std::fill(out.begin(), out.end(), 0.0f);
  std::vector<float> partial(out.size());
  for (int index = 0; index < order.parts; ++index) {
    const Piece part = piece(rows.size(), order, index);
    std::fill(partial.begin(), partial.end(), 0.0f);
    for (size_t j = part.begin; j < part.end; ++j) {
      for (size_t d = 0; d < out.size(); ++d) partial[d] += weights[j] * rows[j][d];
    }
    for (size_t d = 0; d < out.size(); ++d) out[d] += partial[d];
  }
}

}  // namespace ascend_fake
