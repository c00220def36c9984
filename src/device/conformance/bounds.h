// How far a device that adds in orders of its own, and multiplies in 16-bit types, may be from the reference device.
// Every bound is derived, none is tuned: a sum of n rounded terms is within n roundings of the sum of their magnitudes
// in any order, and a number kept in a type of p digits is within 2^-p of itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "device/conformance/attention_scenario.h"

namespace espalier {

inline constexpr double kRounding = 0x1p-24;  // of a float
// Of a number in this type, relative to it; 0 for f32, in which it is given.
double rounding_in(DType type);

// Elements are equal, both NaN, or no further apart than their bound. Fails the running test at the first that is not.
void expect_within(std::span<const float> actual, std::span<const float> expected, std::span<const double> bounds);

// The same bound for every element, by the size of the numbers that went in; infinite where those are not ordinary: for
// infinities, NaN, and magnitudes whose products or squares are not floats, a device may do as it likes.
bool is_ordinary(float value);
double bound_unless_strange(std::span<const float> inputs, double bound);

// A linear's output from a row x and the weights w, both as floats.   kept: the type the device keeps the weight in,
// and rounds x to    quantised: the reference device quantised x    stored: the type the file has them in
struct LinearTerms {
  std::span<const float> x;
  std::span<const float> w;
  float bias = 0;
  DType kept = DType::f32;
  DType stored = DType::f32;
};
double linear_bound(const LinearTerms& terms);

// A linear's output where matrix instructions multiply x, taken as a sum of `terms` numbers of the weights' type (bf16,
// f16), as float_fragments.h says: 0 where x is not finite, since the output is not either.
struct MatrixTerms {
  std::span<const float> x;
  std::span<const float> w;
  float bias = 0;
  DType type = DType::bf16;
  int terms = 2;
};
double matrix_bound(const MatrixTerms& terms);

// The outputs of attention for every row and head, [rows, heads, dim], with K and V of this type.
std::vector<double> attention_bounds(const AttentionScenario& scenario, DType type, float scale);

}  // namespace espalier
