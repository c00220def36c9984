// The reference device against plain formulas in double precision. Bounds are derived: a sum of n rounded terms is off
// by at most n * 2^-24 of the sum of their magnitudes, give or take a few roundings around it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "device/conformance/random_values.h"
#include "device/reference/testing/reference_call.h"

namespace espalier {
namespace {

constexpr double kEps = 0x1p-24;  // half an ulp of 1: the relative error of one rounding

class ReferenceAccuracy : public testing::Test {
 protected:
  using Floats = ReferenceCalls::Floats;

  static std::size_t at(std::int64_t r, std::int64_t c, std::int64_t width) {
    return static_cast<std::size_t>(r * width + c);
  }

  ReferenceCalls reference_;
  RandomValues random_{31};
};

TEST_F(ReferenceAccuracy, RmsNorm) {
  for (const std::int64_t dim : {1, 5, 16, 97, 576}) {
    const std::int64_t rows = 3;
    const Floats x = random_.values(rows * dim), w = random_.values(dim);
    const Floats y = reference_.rms_norm(x, rows, w, 1e-5f);
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < dim; ++c) squares += std::pow(double{x[at(r, c, dim)]}, 2);
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(dim) + double{1e-5f});
      for (std::int64_t c = 0; c < dim; ++c) {
        const double expected = x[at(r, c, dim)] * scale * w[at(0, c, dim)];
        ASSERT_NEAR(y[at(r, c, dim)], expected, (static_cast<double>(dim) / 16 + 12) * kEps * std::fabs(expected));
      }
    }
  }
}

// sum_k x[k] * w[k], the sum of magnitudes, and what rounding x to multiples of d/2 per block of 32 may add.
struct ExactProduct {
  double sum = 0;
  double magnitude = 0;
  double quantisation = 0;
};

ExactProduct exact_product(std::span<const float> x, std::span<const float> w) {
  ExactProduct p;
  for (std::size_t k = 0; k < x.size(); ++k) {
    p.sum += double{x[k]} * double{w[k]};
    p.magnitude += std::fabs(double{x[k]} * double{w[k]});
    const std::size_t block = k / 32 * 32;
    double largest = 0;
    for (std::size_t j = block; j < std::min(block + 32, x.size()); ++j)
      largest = std::max(largest, std::fabs(double{x[j]}));
    p.quantisation += std::fabs(double{w[k]}) * largest / 127 * 0.50001;
  }
  return p;
}

TEST_F(ReferenceAccuracy, LinearForEveryWeightType) {
  for (const DType type : kLinearTypes) {
    for (const std::int64_t inputs : {256, 768}) {
      const std::int64_t rows = 3, outputs = 17;
      const Floats x = random_.values(rows * inputs), bias = random_.values(outputs);
      const std::vector<std::byte> bytes = random_.weight(type, outputs, inputs);
      const WeightPart part{type, outputs, inputs, bytes};
      const Floats y = reference_.linear(x, rows, {&part, 1}, bias);
      const std::size_t row_size = bytes.size() / static_cast<std::size_t>(outputs);
      for (std::int64_t n = 0; n < outputs; ++n) {
        Floats w(static_cast<std::size_t>(inputs));
        widen_row(type, std::span(bytes).subspan(static_cast<std::size_t>(n) * row_size, row_size), w);
        for (std::int64_t r = 0; r < rows; ++r) {
          const ExactProduct p = exact_product(std::span(x).subspan(at(r, 0, inputs), w.size()), w);
          const double rounding =
              static_cast<double>(inputs + 8) * kEps * (p.magnitude + std::fabs(bias[static_cast<std::size_t>(n)]));
          const double bound = is_float(type) ? rounding : p.quantisation + 8 * rounding;
          ASSERT_NEAR(y[at(r, n, outputs)], p.sum + bias[static_cast<std::size_t>(n)], bound) << name(type);
        }
      }
    }
  }
}

// With inputs that are whole multiples of d nothing is lost to quantisation, and only rounding of the sum remains.
TEST_F(ReferenceAccuracy, LinearOfInputsThatQuantiseExactly) {
  for (const DType type : kLinearTypes) {
    if (is_float(type)) continue;
    const std::int64_t inputs = 512, outputs = 9;
    Floats x(static_cast<std::size_t>(inputs));
    for (std::size_t k = 0; k < x.size(); ++k) {
      const float d = std::ldexp(1.0f, static_cast<int>(k / 32 % 5) - 2);
      x[k] = k % 32 == 0 ? 127 * d : static_cast<float>(random_.between(-127, 127)) * d;
    }
    const std::vector<std::byte> bytes = random_.weight(type, outputs, inputs);
    const WeightPart part{type, outputs, inputs, bytes};
    const Floats y = reference_.linear(x, 1, {&part, 1});
    const std::size_t row_size = bytes.size() / static_cast<std::size_t>(outputs);
    for (std::int64_t n = 0; n < outputs; ++n) {
      // The minimum enters apart from the products, so magnitudes are those of scale * q and of the minimum.
      QuantisedRow w;
      decode_row(type, std::span(bytes).subspan(static_cast<std::size_t>(n) * row_size, row_size), inputs, w);
      double sum = 0, magnitude = 0;
      for (std::size_t k = 0; k < x.size(); ++k) {
        const std::size_t b = k / static_cast<std::size_t>(w.block);
        const double product = double{w.scale[b]} * w.q[k] * x[k], least = double{w.minimum[b]} * x[k];
        sum += product + (w.has_minimum ? least : 0.0);
        magnitude += std::fabs(product) + std::fabs(least);
      }
      ASSERT_NEAR(y[at(0, n, outputs)], sum, static_cast<double>(2 * w.scale.size() + 4) * kEps * magnitude)
          << name(type);
    }
  }
}

TEST_F(ReferenceAccuracy, Rope) {
  const std::int64_t rows = 4, heads = 3, half = 16, width = heads * 2 * half, positions = 50;
  Floats cosine, sine;
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(p) * std::pow(10000.0, -static_cast<double>(j) / half);
      cosine.push_back(static_cast<float>(std::cos(angle)));
      sine.push_back(static_cast<float>(std::sin(angle)));
    }
  const Floats x = random_.values(rows * width);
  const std::vector<std::int32_t> position = {0, 49, 7, 7};
  const Floats y = reference_.rope(x, rows, heads, position, cosine, sine, positions);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t j = 0; j < half; ++j) {
        const std::size_t first = at(r, h * 2 * half + j, width), second = first + static_cast<std::size_t>(half);
        const double c = cosine[at(position[static_cast<std::size_t>(r)], j, half)];
        const double s = sine[at(position[static_cast<std::size_t>(r)], j, half)];
        const double bound = 2 * kEps * (std::fabs(x[first]) + std::fabs(x[second]));
        ASSERT_NEAR(y[first], x[first] * c - x[second] * s, bound);
        ASSERT_NEAR(y[second], x[second] * c + x[first] * s, bound);
      }
}

TEST_F(ReferenceAccuracy, Swiglu) {
  Floats x = random_.values(2 * 500);
  for (std::size_t i = 0; i < 500; ++i) x[i] *= 25;
  const Floats y = reference_.swiglu(x);
  for (std::size_t c = 0; c < 500; ++c) {
    const double expected = double{x[c]} / (1 + std::exp(-double{x[c]})) * double{x[c + 500]};
    // Where the exponential overflows a float, the true value is below 1e-36.
    ASSERT_NEAR(y[c], expected, 8 * kEps * std::fabs(expected) + 1e-36) << x[c];
  }
}

TEST_F(ReferenceAccuracy, Silu) {
  Floats x = random_.values(500);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= 25;
  const Floats y = reference_.silu(x);
  for (std::size_t c = 0; c < x.size(); ++c) {
    const double expected = double{x[c]} / (1 + std::exp(-double{x[c]}));
    ASSERT_NEAR(y[c], expected, 7 * kEps * std::fabs(expected) + 1e-36) << x[c];
  }
}

// Each t[j] is off by one rounding of itself, t[j] - m by one more, and exp by 2 ulp; the sum by a rounding per element
// of a lane and eight for the halves. A relative error of the sum is an absolute one of its logarithm.
TEST_F(ReferenceAccuracy, LogSumExp) {
  for (const std::int64_t n : {1, 5, 16, 97, 256, 2000})
    for (const float scale : {1.0f, 0.3f, 1.7f}) {
      const Floats x = random_.values(n);
      double largest = 0, sum = 0;
      for (float value : x) largest = std::max(largest, std::fabs(double{scale} * value));
      for (float value : x) sum += std::exp(double{scale} * value);
      const double relative = (3 * largest + 4 + static_cast<double>(n) / 256 + 9) * kEps;
      const double expected = std::log(sum);
      ASSERT_NEAR(reference_.log_sum_exp(x, scale), expected,
                  relative + largest * kEps + 2 * kEps * std::fabs(expected))
          << n << " values, scale " << scale;
    }
}

double stored(float value, DType type) {
  if (type == DType::f16) return f16_to_f32(f32_to_f16(value));
  if (type == DType::bf16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

// softmax(scale * q k) v over the keys of a row, and how far rounding may move it.
struct ExactHead {
  std::vector<double> out;
  double bound = 0;
};

ExactHead exact_head(const AttentionScenario& s, DType type, std::size_t r, std::int64_t head) {
  const LogicalRow& row = s.rows[r];
  const std::int64_t dim = s.shape.dim;
  std::vector<std::int64_t> keys;
  for (std::int64_t p = row.begin; p < row.end; ++p) keys.push_back(p);
  keys.insert(keys.end(), row.ancestors.begin(), row.ancestors.end());
  keys.push_back(row.position);
  const double scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const float* const q = s.query.data() + (static_cast<std::int64_t>(r) * s.shape.heads() + head) * dim;
  const auto element = [&](const std::vector<std::vector<float>>& all, std::int64_t p, std::int64_t i) {
    const std::int64_t at = (p * s.shape.kv_heads + head / s.shape.group) * dim + i;
    return stored(all[static_cast<std::size_t>(row.sequence)][static_cast<std::size_t>(at)], type);
  };
  std::vector<double> score;
  double score_error = 0, largest_value = 0;
  for (std::int64_t p : keys) {
    double dot = 0, magnitude = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      dot += q[i] * element(s.k, p, i);
      magnitude += std::fabs(q[i] * element(s.k, p, i));
      largest_value = std::max(largest_value, std::fabs(element(s.v, p, i)));
    }
    score.push_back(scale * dot);
    score_error = std::max(score_error, scale * magnitude * (static_cast<double>(dim) / 16 + 8) * kEps);
  }
  const double largest = *std::max_element(score.begin(), score.end());
  ExactHead result{std::vector<double>(static_cast<std::size_t>(dim)), 0};
  double sum = 0;
  for (std::size_t j = 0; j < keys.size(); ++j) {
    const double e = std::exp(score[j] - largest);
    sum += e;
    for (std::int64_t i = 0; i < dim; ++i) result.out[static_cast<std::size_t>(i)] += e * element(s.v, keys[j], i);
  }
  for (double& x : result.out) x /= sum;
  // A relative error of each weight counts twice, above and below the fraction bar.
  // Between a key and the result lie its tile's sum, the tile's weight (a difference and exp) and the sum of tiles.
  const double tiles = static_cast<double>(keys.size()) / 128 + 2;
  const double weight_error = 2 * score_error + (16 + static_cast<double>(keys.size()) + tiles) * kEps;
  result.bound = 2 * weight_error * largest_value;
  return result;
}

TEST_F(ReferenceAccuracy, AttentionInEveryFormAndKvType) {
  for (const DType type : {DType::f16, DType::bf16, DType::f32})
    for (const std::uint64_t seed : {1, 2, 3}) {
      const AttentionScenario s(
          {.rows = 9, .sequences = 2, .longest_prefix = 270, .window = seed == 2 ? 20 : 0, .dim = 32}, seed);
      for (const AttentionForm form : {AttentionForm::lists, AttentionForm::mask, AttentionForm::eager}) {
        const Floats out = run_attention(*reference_.device, s, type, form, seed);
        for (std::size_t r = 0; r < s.rows.size(); ++r)
          for (std::int64_t h = 0; h < s.shape.heads(); ++h) {
            const ExactHead expected = exact_head(s, type, r, h);
            for (std::int64_t i = 0; i < s.shape.dim; ++i)
              ASSERT_NEAR(out[at(static_cast<std::int64_t>(r) * s.shape.heads() + h, i, s.shape.dim)],
                          expected.out[static_cast<std::size_t>(i)], expected.bound);
          }
      }
    }
}

}  // namespace
}  // namespace espalier
