// Operators that work element by element, with broadcasting.
#include <algorithm>
#include <cmath>

#include "op.h"

namespace ascend_fake {
namespace {

template <typename T>
std::vector<T> spread(const std::vector<T>& values, const Shape& shape, const Shape& target) {
  if (shape == target) return values;
  std::vector<T> result;
  result.reserve(static_cast<size_t>(product(target)));
  for (const int64_t index : broadcast_indices(shape, target)) result.push_back(values[static_cast<size_t>(index)]);
  return result;
}

std::vector<uint8_t> spread_raw(const std::vector<uint8_t>& bytes, int64_t size, const Shape& shape,
                                const Shape& target) {
  if (shape == target) return bytes;
  std::vector<uint8_t> result;
  for (const int64_t index : broadcast_indices(shape, target)) {
    result.insert(result.end(), bytes.begin() + index * size, bytes.begin() + (index + 1) * size);
  }
  return result;
}

bool is_integer(aclDataType type) {
  return !is_float(type) && type != ACL_DOUBLE;
}

void need_computed_type(const OpCall& op, aclDataType type) {
  op.need(is_float(type) || is_index(type), std::string("not computed in ") + name_of(type));
}

// y = combine(a, b), the two broadcast to y.
template <typename Combine>
void run_binary(OpRun& run, const Operand& a, const Operand& b, const Operand& y, Combine combine) {
  if (is_integer(y.type)) {
    std::vector<int64_t> left = spread(run.integers(a), a.dims, y.dims);
    const std::vector<int64_t> right = spread(run.integers(b), b.dims, y.dims);
    for (size_t i = 0; i < left.size(); ++i) left[i] = combine(left[i], right[i]);
    return run.store(y, left);
  }
  std::vector<float> left = spread(run.floats(a), a.dims, y.dims);
  const std::vector<float> right = spread(run.floats(b), b.dims, y.dims);
  for (size_t i = 0; i < left.size(); ++i) left[i] = combine(left[i], right[i]);
  run.store(y, left);
}

void check_binary(const OpCall& op, const Operand& a, const Operand& b, const Operand& y) {
  need_computed_type(op, y.type);
  op.need(a.type == b.type && a.type == y.type, "inputs and output are not of one type");
  op.need(broadcast(op, a.dims, b.dims) == y.dims, "the output is not the inputs broadcast");
}

void add(OpCall& op, const Operand& a, const Operand& b, double alpha, const Operand& y) {
  check_binary(op, a, b, y);
  op.runs([=](OpRun& run) {
    run_binary(run, a, b, y, [alpha](auto left, auto right) {
      using T = decltype(left);
      return static_cast<T>(left + static_cast<T>(alpha) * right);
    });
  });
}

// y = change(x), in float.
template <typename Change>
void map_floats(OpCall& op, const Operand& x, const Operand& y, Change change) {
  op.need(is_float(x.type) && x.type == y.type, "not of one float type");
  op.need(x.dims == y.dims, "input and output differ in shape");
  op.runs([=](OpRun& run) {
    std::vector<float> values = run.floats(x);
    for (float& value : values) value = change(value);
    run.store(y, values);
  });
}

// The values of src, of the type of target and broadcast to it.
void convert(OpRun& run, const Operand& src, const Operand& target) {
  if (src.type == target.type) {
    return run.store_raw(target, spread_raw(run.raw(src), src.element_bytes(), src.dims, target.dims));
  }
  if (is_integer(src.type)) {
    std::vector<int64_t> values = run.integers(src);
    if (target.type == ACL_BOOL)
      std::transform(values.begin(), values.end(), values.begin(), [](auto v) { return v != 0; });
    return run.store(target, spread(values, src.dims, target.dims));
  }
  std::vector<float> values = run.floats(src);
  if (is_integer(target.type) && std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); })) {
    run.violation(37, "NaN is cast to an integer");
  }
  if (target.type == ACL_BOOL)
    std::transform(values.begin(), values.end(), values.begin(), [](auto v) { return v != 0 ? 1.0f : 0.0f; });
  run.store(target, spread(values, src.dims, target.dims));
}

void need_plain_bytes(const OpCall& op, const Operand& operand) {
  op.need(bits_of(operand.type) >= 8, "elements smaller than a byte");
}

}  // namespace

ASCEND_FAKE_OP(Add)
aclnnStatus aclnnAddGetWorkspaceSize(const aclTensor* self, const aclTensor* other, const aclScalar* alpha,
                                     aclTensor* out, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Add, [&](OpCall& op) {
    const Operand a = op.in(self, "self");
    const Operand b = op.in(other, "other");
    const double factor = op.scalar(alpha, "alpha");
    add(op, a, b, factor, op.out(out, "out"));
  });
}

ASCEND_FAKE_OP(InplaceAdd)
aclnnStatus aclnnInplaceAddGetWorkspaceSize(aclTensor* selfRef, const aclTensor* other, const aclScalar* alpha,
                                            uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(InplaceAdd, [&](OpCall& op) {
    op.may_alias();
    const Operand self = op.in_out(selfRef, "selfRef");
    const Operand b = op.in(other, "other");
    add(op, self, b, op.scalar(alpha, "alpha"), self);
  });
}

ASCEND_FAKE_OP(Adds)
aclnnStatus aclnnAddsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, const aclScalar* alpha,
                                      aclTensor* out, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Adds, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const double summand = op.scalar(other, "other");
    const float added = static_cast<float>(summand * op.scalar(alpha, "alpha"));
    map_floats(op, x, op.out(out, "out"), [added](float value) { return value + added; });
  });
}

ASCEND_FAKE_OP(Mul)
aclnnStatus aclnnMulGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* size,
                                     aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Mul, [&](OpCall& op) {
    const Operand a = op.in(self, "self");
    const Operand b = op.in(other, "other");
    const Operand y = op.out(out, "out");
    check_binary(op, a, b, y);
    op.runs([=](OpRun& run) { run_binary(run, a, b, y, [](auto left, auto right) { return left * right; }); });
  });
}

ASCEND_FAKE_OP(Muls)
aclnnStatus aclnnMulsGetWorkspaceSize(const aclTensor* self, const aclScalar* other, aclTensor* out, uint64_t* size,
                                      aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Muls, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    const float factor = static_cast<float>(op.scalar(other, "other"));
    map_floats(op, x, op.out(out, "out"), [factor](float value) { return value * factor; });
  });
}

ASCEND_FAKE_OP(InplaceMuls)
aclnnStatus aclnnInplaceMulsGetWorkspaceSize(aclTensor* selfRef, const aclScalar* other, uint64_t* size,
                                             aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(InplaceMuls, [&](OpCall& op) {
    const Operand self = op.in_out(selfRef, "selfRef");
    const float factor = static_cast<float>(op.scalar(other, "other"));
    map_floats(op, self, self, [factor](float value) { return value * factor; });
  });
}

// torch_npu passes out == self for its in-place form.
ASCEND_FAKE_OP(Silu)
aclnnStatus aclnnSiluGetWorkspaceSize(const aclTensor* self, aclTensor* out, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Silu, [&](OpCall& op) {
    op.may_alias();
    const Operand x = op.in(self, "self");
    map_floats(op, x, op.out(out, "out"), [](float value) { return value / (1.0f + std::exp(-value)); });
  });
}

ASCEND_FAKE_OP(NanToNum)
aclnnStatus aclnnNanToNumGetWorkspaceSize(const aclTensor* self, float nan, float posinf, float neginf, aclTensor* out,
                                          uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(NanToNum, [&](OpCall& op) {
    const Operand x = op.in(self, "self");
    map_floats(op, x, op.out(out, "out"), [=](float value) {
      if (std::isnan(value)) return nan;
      if (!std::isinf(value)) return value;
      return value > 0 ? posinf : neginf;
    });
  });
}

ASCEND_FAKE_OP(Cast)
aclnnStatus aclnnCastGetWorkspaceSize(const aclTensor* self, aclDataType dtype, aclTensor* out, uint64_t* size,
                                      aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Cast, [&](OpCall& op) {
    op.takes_strides();
    const Operand x = op.in(self, "self");
    const Operand y = op.out(out, "out");
    need_plain_bytes(op, x);
    need_plain_bytes(op, y);
    op.need(y.type == dtype, "the output is not of the type that is asked for");
    op.need(x.dims == y.dims, "input and output differ in shape");
    op.runs([=](OpRun& run) { convert(run, x, y); });
  });
}

ASCEND_FAKE_OP(InplaceCopy)
aclnnStatus aclnnInplaceCopyGetWorkspaceSize(aclTensor* selfRef, const aclTensor* src, uint64_t* size,
                                             aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(InplaceCopy, [&](OpCall& op) {
    op.takes_strides();
    op.copies_inside();
    const Operand y = op.out(selfRef, "selfRef");
    const Operand x = op.in(src, "src");
    need_plain_bytes(op, x);
    need_plain_bytes(op, y);
    op.need(broadcast(op, y.dims, x.dims) == y.dims, "the source does not fit into the target");
    op.runs([=](OpRun& run) { convert(run, x, y); });
  });
}

ASCEND_FAKE_OP(InplaceMaskedFillScalar)
aclnnStatus aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor* selfRef, const aclTensor* mask,
                                                         const aclScalar* value, uint64_t* size,
                                                         aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(InplaceMaskedFillScalar, [&](OpCall& op) {
    const Operand self = op.in_out(selfRef, "selfRef");
    const Operand hidden = op.in(mask, "mask");
    const float fill = static_cast<float>(op.scalar(value, "value"));
    op.violation(34, hidden.type != ACL_BOOL, "the mask is not BOOL");
    op.need(bits_of(hidden.type) == 8, "the mask's elements are no bytes");
    op.need(is_float(self.type), "not a float type");
    op.need(broadcast(op, self.dims, hidden.dims) == self.dims, "the mask does not fit");
    op.runs([=](OpRun& run) {
      std::vector<float> values = run.floats(self);
      const std::vector<uint8_t> bits = spread(run.truths(hidden), hidden.dims, self.dims);
      for (size_t i = 0; i < values.size(); ++i) {
        if (bits[i] != 0) values[i] = fill;
      }
      run.store(self, values);
    });
  });
}

ASCEND_FAKE_OP(SWhere)
aclnnStatus aclnnSWhereGetWorkspaceSize(const aclTensor* condition, const aclTensor* self, const aclTensor* other,
                                        aclTensor* out, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(SWhere, [&](OpCall& op) {
    const Operand which = op.in(condition, "condition");
    const Operand a = op.in(self, "self");
    const Operand b = op.in(other, "other");
    const Operand y = op.out(out, "out");
    op.need(which.type == ACL_BOOL || which.type == ACL_UINT8, "the condition is neither BOOL nor u8");
    op.need(a.type == b.type && a.type == y.type, "inputs and output are not of one type");
    need_plain_bytes(op, y);
    op.need(broadcast(op, which.dims, broadcast(op, a.dims, b.dims)) == y.dims,
            "the output is not the inputs broadcast");
    op.runs([=](OpRun& run) {
      const int64_t bytes = y.element_bytes();
      const std::vector<uint8_t> bits = spread(run.truths(which), which.dims, y.dims);
      std::vector<uint8_t> values = spread_raw(run.raw(a), bytes, a.dims, y.dims);
      const std::vector<uint8_t> others = spread_raw(run.raw(b), bytes, b.dims, y.dims);
      for (int64_t i = 0; i < y.elements(); ++i) {
        if (bits[static_cast<size_t>(i)] == 0)
          std::copy_n(others.begin() + i * bytes, bytes, values.begin() + i * bytes);
      }
      run.store_raw(y, values);
    });
  });
}

ASCEND_FAKE_OP(EqTensor)
aclnnStatus aclnnEqTensorGetWorkspaceSize(const aclTensor* self, const aclTensor* other, aclTensor* out, uint64_t* size,
                                          aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(EqTensor, [&](OpCall& op) {
    const Operand a = op.in(self, "self");
    const Operand b = op.in(other, "other");
    const Operand y = op.out(out, "out");
    need_computed_type(op, a.type);
    op.need(a.type == b.type && y.type == ACL_BOOL, "inputs of one type, and a BOOL output");
    op.need(broadcast(op, a.dims, b.dims) == y.dims, "the output is not the inputs broadcast");
    op.runs([=](OpRun& run) {
      std::vector<uint8_t> equal(static_cast<size_t>(y.elements()));
      const auto compare = [&](const auto& left, const auto& right) {
        for (size_t i = 0; i < equal.size(); ++i) equal[i] = left[i] == right[i] ? 1 : 0;
      };
      if (is_integer(a.type)) {
        compare(spread(run.integers(a), a.dims, y.dims), spread(run.integers(b), b.dims, y.dims));
      } else {
        compare(spread(run.floats(a), a.dims, y.dims), spread(run.floats(b), b.dims, y.dims));
      }
      run.store(y, equal);
    });
  });
}

}  // namespace ascend_fake
