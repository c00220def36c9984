#include "device/conformance/bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/float16.h"

namespace espalier {
namespace {

constexpr double kAnything = std::numeric_limits<double>::infinity();
constexpr float kLargestF16 = 65504;
constexpr double kSmallestF16 = 0x1p-25;  // half of the distance of its subnormals
constexpr std::int64_t kQuantisedBlock = 32;

// Of the block of 32 that begins here.
float largest_in_block(std::span<const float> x, std::size_t begin) {
  float largest = 0;
  for (float value : x.subspan(begin, kQuantisedBlock)) largest = std::max(largest, std::fabs(value));
  return largest;
}

// What quantising a row in blocks of 32 to whole multiples of absmax / 127 changes at an element of such a block.
double quantisation_error(float x, float largest) {
  return largest < 0x1p-100f ? std::fabs(x) : 0.5 * largest / 127 * (1 + 8 * kRounding);
}

float stored_as(DType type, float value) {
  if (type == DType::f16) return f16_to_f32(f32_to_f16(value));
  return type == DType::bf16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

// Positions that a row sees.
std::vector<std::int64_t> seen_by(const LogicalRow& row) {
  std::vector<std::int64_t> seen;
  for (std::int64_t p = row.begin; p < row.end; ++p) seen.push_back(p);
  seen.insert(seen.end(), row.ancestors.begin(), row.ancestors.end());
  seen.push_back(row.position);
  return seen;
}

}  // namespace

double rounding_in(DType type) {
  return type == DType::f16 ? 0x1p-11 : type == DType::bf16 ? 0x1p-8 : 0;
}

void expect_within(std::span<const float> actual, std::span<const float> expected, std::span<const double> bounds) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_EQ(actual.size(), bounds.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i] || std::isinf(bounds[i])) continue;
    if (std::isnan(actual[i]) && std::isnan(expected[i])) continue;
    ASSERT_LE(std::fabs(double{actual[i]} - double{expected[i]}), bounds[i])
        << "element " << i << ": got " << actual[i] << ", expected " << expected[i];
  }
}

bool is_ordinary(float value) {
  return std::isfinite(value) && std::fabs(value) < 1e15f;
}

double bound_unless_strange(std::span<const float> inputs, double bound) {
  return std::ranges::all_of(inputs, is_ordinary) ? bound : kAnything;
}

double linear_bound(const LinearTerms& t) {
  const double of_x = rounding_in(t.kept), of_w = is_float(t.stored) && t.stored == t.kept ? 0 : rounding_in(t.kept);
  const double of_sum = 4 * static_cast<double>(t.x.size() + 4) * kRounding;  // the judge's and the device's
  double bound = 0, magnitude = std::fabs(t.bias);
  float largest = 0;
  for (std::size_t k = 0; k < t.x.size(); ++k) {
    const double x = std::fabs(t.x[k]), w = std::fabs(t.w[k]);
    if (is_block_quantised(t.stored) && k % kQuantisedBlock == 0) largest = largest_in_block(t.x, k);
    if (!std::isfinite(x) || (t.kept == DType::f16 && (x > kLargestF16 || w > kLargestF16))) return kAnything;
    bound += x * w * (of_x + of_w + of_x * of_w + of_sum);
    if (t.kept == DType::f16) bound += kSmallestF16 * (x + w);
    if (is_block_quantised(t.stored)) bound += w * quantisation_error(t.x[k], largest);
    magnitude += x * w;
  }
  return bound + 4 * kRounding * magnitude + 0x1p-140;
}

// An instruction adds 16 products and a sum. Each of the 17 is cut, at worst, at the last place of a float as large as
// the largest of them, and the result is rounded or cut once more. f16 terms are those of a row whose largest number
// was brought to 2^14 or more.
double matrix_bound(const MatrixTerms& t) {
  constexpr double kOfInstruction = 18 * 2 * kRounding;
  constexpr std::int64_t kChunk = 128, kSteps = 8, kStrands = 4;
  const auto inputs = static_cast<std::int64_t>(t.x.size()), chunks = (inputs + kChunk - 1) / kChunk;
  const double instructions = static_cast<double>(t.terms * kSteps * ((chunks + kStrands - 1) / kStrands));
  const double of_sums =
      instructions * kOfInstruction + static_cast<double>(inputs + 8) * kRounding;  // and the judge's
  double magnitude = std::fabs(t.bias), largest = 0, weights = 0;
  bool finite = true;
  for (std::size_t k = 0; k < t.x.size(); ++k) {
    finite = finite && std::isfinite(t.x[k]);
    if (!std::isfinite(t.x[k])) continue;
    magnitude += std::fabs(double{t.x[k]} * double{t.w[k]});
    largest = std::max<double>(largest, std::fabs(t.x[k]));
    weights += std::fabs(t.w[k]);
  }
  if (magnitude >= std::numeric_limits<float>::max() / 2) return kAnything;  // one order overflows, another does not
  if (!finite) return 0;
  const double smallest = t.type == DType::f16 ? kSmallestF16 * largest / 0x1p14 : 0x1p-134;
  return magnitude * (std::pow(rounding_in(t.type), t.terms) + of_sums) * (1 + kRounding) + weights * smallest +
         0x1p-140;
}

// A score that is wrong by d changes each weight by a factor of at most exp(d), and so does the sum of weights; a
// result is an average of values, and is kept in the same type as they are.
std::vector<double> attention_bounds(const AttentionScenario& s, DType type, float scale) {
  const double of_type = rounding_in(type);
  const std::int64_t heads = s.shape.heads(), dim = s.shape.dim, kv_width = s.shape.kv_heads * dim;
  std::vector<double> bounds;
  for (std::size_t r = 0; r < s.rows.size(); ++r) {
    const std::vector<std::int64_t> seen = seen_by(s.rows[r]);
    const auto sequence = static_cast<std::size_t>(s.rows[r].sequence);
    for (std::int64_t h = 0; h < heads; ++h) {
      double largest_score = 0, largest_value = 0;
      for (std::int64_t p : seen) {
        double score = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto key = static_cast<std::size_t>(p * kv_width + h / s.shape.group * dim + d);
          const auto query =
              (r * static_cast<std::size_t>(heads) + static_cast<std::size_t>(h)) * static_cast<std::size_t>(dim) +
              static_cast<std::size_t>(d);
          score += std::fabs(double{s.query[query]} * stored_as(type, s.k[sequence][key]));
          largest_value = std::max<double>(largest_value, std::fabs(stored_as(type, s.v[sequence][key])));
        }
        largest_score = std::max(largest_score, scale * score);
      }
      const double of_score = largest_score * (of_type + 2 * static_cast<double>(dim + 8) * kRounding);
      const double of_sums = 8 * static_cast<double>(seen.size() + 8) * kRounding;
      const double bound =
          largest_value * (std::expm1(2 * of_score) + 3 * of_type + of_sums) +
          (type == DType::f16 ? static_cast<double>(seen.size() + 1) * kSmallestF16 * largest_value : 0) + 0x1p-24;
      bounds.insert(bounds.end(), static_cast<std::size_t>(dim), bound);
    }
  }
  return bounds;
}

}  // namespace espalier
