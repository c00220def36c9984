// Operators along a dimension: maxima, sums of exponentials, sorting (F31 to F33). NaN and the order of equals are
// undocumented: the former is a violation, the latter seeded.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "numbers.h"
#include "op.h"

namespace ascend_fake {
namespace {

// The dimensions of self as reduced: dims, keepDim and out as every reduction has them. [kept, reduced] is the order of
// the values which rows() gives.
struct Reduction {
  Operand turned{};  // self with the reduced dimensions last
  int64_t kept = 1;
  int64_t reduced = 1;
};

Reduction reduction(OpCall& op, const Operand& x, const Shape& dims, bool keep, const Operand& y) {
  std::vector<bool> gone(x.dims.size(), false);
  for (const int64_t dim : dims) gone[static_cast<size_t>(dimension(op, dim, x.rank()))] = true;
  Reduction result{.turned = x};
  result.turned.dims.clear();
  result.turned.strides.clear();
  Shape expected;
  for (const bool last : {false, true}) {
    for (size_t i = 0; i < x.dims.size(); ++i) {
      if (gone[i] != last) continue;
      result.turned.dims.push_back(x.dims[i]);
      result.turned.strides.push_back(x.strides[i]);
      (last ? result.reduced : result.kept) *= x.dims[i];
    }
  }
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (!gone[i]) expected.push_back(x.dims[i]);
    if (gone[i] && keep) expected.push_back(1);
  }
  if (expected.empty()) expected.push_back(1);
  op.need(y.dims == expected, "the output is " + text_of(y.dims) + ", expected " + text_of(expected));
  return result;
}

template <typename T, typename Best>
std::vector<T> best_of_rows(const std::vector<T>& values, const Reduction& shape, Best best) {
  std::vector<T> result;
  for (int64_t row = 0; row < shape.kept; ++row) {
    const T* first = values.data() + row * shape.reduced;
    result.push_back(std::accumulate(first + 1, first + shape.reduced, *first, best));
  }
  return result;
}

bool has_nan(const std::vector<float>& values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

template <typename Best>
void reduce_best(OpCall& op, const aclTensor* self, const aclIntArray* dims, bool keep, aclTensor* out, Best best) {
  const Operand x = op.in(self, "self");
  const Shape which = op.integers(dims, "dim");
  const Operand y = op.out(out, "out");
  op.need(x.type == y.type && (is_float(x.type) || is_index(x.type)), "input and output are not of one type");
  const Reduction shape = reduction(op, x, which, keep, y);
  op.runs([=](OpRun& run) {
    if (is_index(x.type)) return run.store(y, best_of_rows(run.integers(shape.turned), shape, best));
    const std::vector<float> values = run.floats(shape.turned);
    if (has_nan(values)) run.violation(32, "the maximum or minimum of NaN");
    run.store(y, best_of_rows(values, shape, best));
  });
}

// The places of a row's values in order. Equal values: by place where stable, else as the seed likes.
std::vector<int64_t> sorted_places(const float* values, int64_t count, bool descending, bool stable, uint64_t seed) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
    if (values[a] != values[b]) return descending ? values[a] > values[b] : values[a] < values[b];
    if (stable || seed == 0) return false;
    return mixed(seed, static_cast<uint64_t>(a)) < mixed(seed, static_cast<uint64_t>(b));
  });
  return places;
}

int64_t place_of_largest(const float* values, int64_t count, uint64_t seed) {
  const float largest = *std::max_element(values, values + count);
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] != largest) continue;
    const bool wins = seed != 0 && mixed(seed, static_cast<uint64_t>(i)) < mixed(seed, static_cast<uint64_t>(best));
    if (best < 0 || wins) best = i;
  }
  return std::max<int64_t>(best, 0);
}

// self turned so that dim comes last, and out likewise: rows of values that lie together.
Operand turned_last(const Operand& x, int64_t dim) {
  Operand result = x;
  const auto place = static_cast<std::ptrdiff_t>(dim);
  std::rotate(result.dims.begin() + place, result.dims.begin() + place + 1, result.dims.end());
  std::rotate(result.strides.begin() + place, result.strides.begin() + place + 1, result.strides.end());
  return result;
}

struct Sorted {
  Operand x;
  Operand values;
  Operand indices;
  int64_t count;  // how many of a row are given
  bool descending;
  bool stable;
  int rule;
};

void run_sorted(OpRun& run, const Sorted& sort) {
  const std::vector<float> values = run.floats(sort.x);
  if (has_nan(values)) run.violation(sort.rule, "NaN is sorted");
  const int64_t extent = sort.x.dim(-1);
  std::vector<float> best;
  std::vector<int64_t> places;
  for (int64_t first = 0; first < sort.x.elements(); first += extent) {
    const auto order = sorted_places(values.data() + first, extent, sort.descending, sort.stable, run.seed());
    for (int64_t i = 0; i < sort.count; ++i) {
      places.push_back(order[static_cast<size_t>(i)]);
      best.push_back(values[static_cast<size_t>(first + places.back())]);
    }
  }
  run.store(sort.values, best);
  run.store(sort.indices, places);
}

void need_sortable(OpCall& op, const Operand& x, const Operand& values, const Operand& indices, const Shape& expected) {
  op.need(is_float(x.type) && x.type == values.type, "values are not of the input's float type");
  op.need(indices.type == ACL_INT64, "the indices are not i64");
  op.need(values.dims == expected && indices.dims == expected, "the outputs are not " + text_of(expected));
}

float log_sum_exp(const float* values, int64_t count, const SumOrder& order) {
  float largest = *std::max_element(values, values + count);
  if (std::isinf(largest)) largest = 0;
  std::vector<float> terms;
  for (int64_t i = 0; i < count; ++i) terms.push_back(std::exp(values[i] - largest));
  return largest + std::log(sum(terms, order));
}

void softmax_row(float* values, int64_t count, const SumOrder& order) {
  const float largest = *std::max_element(values, values + count);
  for (int64_t i = 0; i < count; ++i) values[i] = std::exp(values[i] - largest);
  const float total = sum({values, static_cast<size_t>(count)}, order);
  for (int64_t i = 0; i < count; ++i) values[i] /= total;
}

}  // namespace

ASCEND_FAKE_OP(Softmax)
aclnnStatus aclnnSoftmaxGetWorkspaceSize(const aclTensor* self, int64_t dim, aclTensor* out, uint64_t* size,
                                         aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Softmax, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Operand y = op.out(out, "out");
    op.need(is_float(x.type) && x.type == y.type, "not of one float type");
    op.need(x.dims == y.dims, "input and output differ in shape");
    const int64_t place = dimension(op, dim, x.rank());
    op.runs([source = turned_last(x, place), target = turned_last(y, place)](OpRun& run) {
      std::vector<float> values = run.floats(source);
      const int64_t extent = source.dim(-1);
      const int64_t rows = source.elements() / extent;
      for (int64_t row = 0; row < rows; ++row) softmax_row(values.data() + row * extent, extent, run.order(row, rows));
      run.store(target, values);
    });
  });
}

ASCEND_FAKE_OP(LogSumExp)
aclnnStatus aclnnLogSumExpGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                                           uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(LogSumExp, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Shape dims = op.integers(dim, "dim");
    const Operand y = op.out(out, "out");
    op.need(x.type == ACL_FLOAT && y.type == ACL_FLOAT, "not f32");
    const Reduction shape = reduction(op, x, dims, keepDim, y);
    op.runs([=](OpRun& run) {
      const std::vector<float> values = run.floats(shape.turned);
      std::vector<float> result;
      for (int64_t row = 0; row < shape.kept; ++row) {
        result.push_back(log_sum_exp(values.data() + row * shape.reduced, shape.reduced, run.order(row, shape.kept)));
      }
      run.store(y, result);
    });
  });
}

ASCEND_FAKE_OP(Amax)
aclnnStatus aclnnAmaxGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                                      uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Amax, [&](OpCall& op) {
    reduce_best(op, self, dim, keepDim, out, [](auto a, auto b) { return std::max(a, b); });
  });
}

ASCEND_FAKE_OP(Amin)
aclnnStatus aclnnAminGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepDim, aclTensor* out,
                                      uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Amin, [&](OpCall& op) {
    reduce_best(op, self, dim, keepDim, out, [](auto a, auto b) { return std::min(a, b); });
  });
}

ASCEND_FAKE_OP(All)
aclnnStatus aclnnAllGetWorkspaceSize(const aclTensor* self, const aclIntArray* dim, bool keepdim, aclTensor* out,
                                     uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(All, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Shape dims = op.integers(dim, "dim");
    const Operand y = op.out(out, "out");
    op.need(x.type == ACL_BOOL || x.type == ACL_UINT8, "neither BOOL nor u8");
    op.need(y.type == ACL_BOOL || y.type == x.type, "the output is neither BOOL nor like the input");
    const Reduction shape = reduction(op, x, dims, keepdim, y);
    op.runs([=](OpRun& run) {
      run.store(y, best_of_rows(run.truths(shape.turned), shape, [](uint8_t a, uint8_t b) { return std::min(a, b); }));
    });
  });
}

// Any of the equals.
ASCEND_FAKE_OP(ArgMax)
aclnnStatus aclnnArgMaxGetWorkspaceSize(const aclTensor* self, int64_t dim, bool keepdim, aclTensor* out,
                                        uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(ArgMax, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Operand y = op.out(out, "out");
    op.need(is_float(x.type) && is_index(y.type), "a float input and an output of i32 or i64");
    const Reduction shape = reduction(op, x, {dimension(op, dim, x.rank())}, keepdim, y);
    op.runs([=](OpRun& run) {
      const std::vector<float> values = run.floats(shape.turned);
      if (has_nan(values)) run.violation(32, "the place of the maximum of NaN");
      std::vector<int64_t> places;
      for (int64_t row = 0; row < shape.kept; ++row) {
        places.push_back(place_of_largest(values.data() + row * shape.reduced, shape.reduced, run.seed()));
      }
      run.store(y, places);
    });
  });
}

ASCEND_FAKE_OP(Topk)
aclnnStatus aclnnTopkGetWorkspaceSize(const aclTensor* self, int64_t k, int64_t dim, bool largest, bool sorted,
                                      aclTensor* valuesOut, aclTensor* indicesOut, uint64_t* size,
                                      aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Topk, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Operand values = op.out(valuesOut, "valuesOut");
    const Operand indices = op.out(indicesOut, "indicesOut");
    const int64_t place = dimension(op, dim, x.rank());
    op.need(sorted, "sorted = false");
    op.need(k >= 1 && k <= x.dim(place), "k is not in [1, extent]");
    Shape expected = x.dims;
    expected[static_cast<size_t>(place)] = k;
    need_sortable(op, x, values, indices, expected);
    const Sorted sort{
        turned_last(x, place), turned_last(values, place), turned_last(indices, place), k, largest, false, 31};
    op.runs([sort](OpRun& run) { run_sorted(run, sort); });
  });
}

ASCEND_FAKE_OP(Sort)
aclnnStatus aclnnSortGetWorkspaceSize(const aclTensor* self, bool stable, int64_t dim, bool descending,
                                      aclTensor* valuesOut, aclTensor* indicesOut, uint64_t* size,
                                      aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Sort, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const Operand values = op.out(valuesOut, "valuesOut");
    const Operand indices = op.out(indicesOut, "indicesOut");
    const int64_t place = dimension(op, dim, x.rank());
    need_sortable(op, x, values, indices, x.dims);
    const Sorted sort{turned_last(x, place),
                      turned_last(values, place),
                      turned_last(indices, place),
                      x.dim(place),
                      descending,
                      stable,
                      33};
    op.runs([sort](OpRun& run) { run_sorted(run, sort); });
  });
}

}  // namespace ascend_fake
