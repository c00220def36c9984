// Norms, rotation and the gated activation of a layer.
#include <algorithm>
#include <cmath>

#include "numbers.h"
#include "op.h"

namespace ascend_fake {
namespace {

// R35: x, gamma and y of one type, or 16-bit x and y with gamma in f32.
bool norm_types_fit(const Operand& x, const Operand& gamma, const Operand& y) {
  if (!is_float(x.type) || x.type != y.type) return false;
  return gamma.type == x.type || gamma.type == ACL_FLOAT;
}

// The shape of rstd: that of x, with 1 in the place of gamma's dimensions.
void check_norm(const OpCall& op, const Operand& x, const Operand& gamma, const Operand& y, const Operand& rstd) {
  op.need(norm_types_fit(x, gamma, y), "types that the op does not take");
  op.need(gamma.rank() <= x.rank() && std::equal(gamma.dims.rbegin(), gamma.dims.rend(), x.dims.rbegin()),
          "gamma is not the trailing dimensions of x");
  op.need(x.dims == y.dims, "input and output differ in shape");
  Shape expected = x.dims;
  std::fill_n(expected.rbegin(), gamma.rank(), 1);
  op.need(rstd.type == ACL_FLOAT && rstd.dims == expected, "rstd is not f32 " + text_of(expected));
}

struct Normed {
  std::vector<float> y;
  std::vector<float> rstd;
};

Normed normed(const OpRun& run, const std::vector<float>& x, const std::vector<float>& gamma, double epsilon) {
  Normed result;
  const size_t width = gamma.size();
  const int64_t rows = static_cast<int64_t>(x.size() / width);
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<const float> values(x.data() + static_cast<size_t>(row) * width, width);
    const float mean = dot(values, values, run.order(row, rows)) / static_cast<float>(width);
    result.rstd.push_back(static_cast<float>(1.0 / std::sqrt(mean + epsilon)));
    for (size_t i = 0; i < width; ++i) result.y.push_back(values[i] * result.rstd.back() * gamma[i]);
  }
  return result;
}

// How x, cos and sin lie: for head h of token t the row of x, and that of the tables.
struct RopeShape {
  int64_t batch = 1;
  int64_t tokens = 1;
  int64_t heads = 1;
  bool heads_first = false;  // BNSD
  bool tables_batched = false;
};

// TND with [T, 1, D], BSND with [B or 1, S, 1, D], or BNSD with [B or 1, 1, S, D].
RopeShape rope_shape(const OpCall& op, const Operand& x, const Operand& table) {
  op.need(x.rank() == table.rank() && x.dim(-1) == table.dim(-1), "cos and sin do not fit x");
  if (x.rank() == 3) {
    op.need(table.dims == Shape{x.dim(0), 1, x.dim(2)}, "cos and sin are not [T, 1, D]");
    return {.tokens = x.dim(0), .heads = x.dim(1)};
  }
  op.need(x.rank() == 4 && (table.dim(0) == 1 || table.dim(0) == x.dim(0)), "x is neither 3-D nor 4-D");
  RopeShape shape{.batch = x.dim(0), .tables_batched = table.dim(0) > 1};
  shape.heads_first = table.dim(2) != 1 || x.dim(1) != table.dim(1);
  shape.tokens = x.dim(shape.heads_first ? 2 : 1);
  shape.heads = x.dim(shape.heads_first ? 1 : 2);
  const Shape expected = shape.heads_first ? Shape{table.dim(0), 1, shape.tokens, x.dim(3)}
                                           : Shape{table.dim(0), shape.tokens, 1, x.dim(3)};
  op.need(table.dims == expected, "cos and sin are not " + text_of(expected));
  op.need(!shape.heads_first || shape.batch * shape.heads <= 8 * shape.tokens, "BNSD with B * N > 8 * S");
  return shape;
}

int64_t table_row(const RopeShape& shape, int64_t row) {
  const int64_t batch = row / (shape.tokens * shape.heads);
  const int64_t token = shape.heads_first ? row % shape.tokens : row / shape.heads % shape.tokens;
  return (shape.tables_batched ? batch * shape.tokens : 0) + token;
}

// Rotate half: y = x * cos + (-second half, first half) * sin.
std::vector<float> rotated(const std::vector<float>& x, const std::vector<float>& cosine,
                           const std::vector<float>& sine, const RopeShape& shape) {
  const int64_t width = static_cast<int64_t>(x.size()) / (shape.batch * shape.tokens * shape.heads);
  const int64_t half = width / 2;
  std::vector<float> y(x.size());
  for (int64_t row = 0; row < shape.batch * shape.tokens * shape.heads; ++row) {
    const float* from = x.data() + row * width;
    const float* c = cosine.data() + table_row(shape, row) * width;
    const float* s = sine.data() + table_row(shape, row) * width;
    for (int64_t d = 0; d < width; ++d) {
      const float partner = d < half ? -from[d + half] : from[d - half];
      y[static_cast<size_t>(row * width + d)] = from[d] * c[d] + partner * s[d];
    }
  }
  return y;
}

}  // namespace

ASCEND_FAKE_OP(RmsNorm)
aclnnStatus aclnnRmsNormGetWorkspaceSize(const aclTensor* x, const aclTensor* gamma, double epsilon, aclTensor* yOut,
                                         aclTensor* rstdOut, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(RmsNorm, [&](OpCall& op) {
    const Operand input = op.in(x, "x");
    const Operand weight = op.in(gamma, "gamma");
    const Operand y = op.out(yOut, "yOut");
    const Operand rstd = op.out(rstdOut, "rstdOut");
    check_norm(op, input, weight, y, rstd);
    op.runs([=](OpRun& run) {
      const Normed result = normed(run, run.floats(input), run.floats(weight), epsilon);
      run.store(y, result.y);
      run.store(rstd, result.rstd);
    });
  });
}

ASCEND_FAKE_OP(AddRmsNorm)
aclnnStatus aclnnAddRmsNormGetWorkspaceSize(const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
                                            double epsilon, aclTensor* yOut, aclTensor* rstdOut, aclTensor* xOut,
                                            uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(AddRmsNorm, [&](OpCall& op) {
    const Operand a = op.in(x1, "x1");
    const Operand b = op.in(x2, "x2");
    const Operand weight = op.in(gamma, "gamma");
    const Operand y = op.out(yOut, "yOut");
    const Operand rstd = op.out(rstdOut, "rstdOut");
    const Operand total = op.out(xOut, "xOut");
    check_norm(op, a, weight, y, rstd);
    op.need(a.type == b.type && a.type == weight.type && a.type == total.type, "not of one type");
    op.need(a.dims == b.dims && a.dims == total.dims, "not of one shape");
    op.runs([=](OpRun& run) {
      std::vector<float> x = run.floats(a);
      const std::vector<float> other = run.floats(b);
      for (size_t i = 0; i < x.size(); ++i) x[i] += other[i];
      const Normed result = normed(run, x, run.floats(weight), epsilon);
      run.store(y, result.y);
      run.store(rstd, result.rstd);
      run.store(total, x);
    });
  });
}

ASCEND_FAKE_OP(RotaryPositionEmbedding)
aclnnStatus aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor* x, const aclTensor* cos, const aclTensor* sin,
                                                         int64_t mode, aclTensor* out, uint64_t* size,
                                                         aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(RotaryPositionEmbedding, [&](OpCall& op) {
    const Operand input = op.in(x, "x");
    const Operand c = op.in(cos, "cos");
    const Operand s = op.in(sin, "sin");
    const Operand y = op.out(out, "out");
    op.need(mode == 0, "a mode other than rotate half");
    op.need(is_float(input.type) && input.type == c.type && c.type == s.type && c.type == y.type,
            "not of one float type");
    op.need(c.dims == s.dims && input.dims == y.dims, "shapes that do not fit");
    op.need(input.dim(-1) % 2 == 0 && input.dim(-1) < 896, "the head size is odd or not below 896");
    op.need(y.dense() && !y.same_view(input), "the output is strided, or x itself");
    const RopeShape shape = rope_shape(op, input, c);
    op.runs([=](OpRun& run) { run.store(y, rotated(run.floats(input), run.floats(c), run.floats(s), shape)); });
  });
}

// In place, query and key together.
ASCEND_FAKE_OP_SINCE(ApplyRotaryPosEmbV2, 85)
aclnnStatus aclnnApplyRotaryPosEmbV2GetWorkspaceSize(aclTensor* query, aclTensor* key, const aclTensor* cos,
                                                     const aclTensor* sin, int64_t layout, char* rotaryMode,
                                                     uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(ApplyRotaryPosEmbV2, [&](OpCall& op) {
    const Operand q = op.in_out(query, "query");
    const Operand k = op.in_out(key, "key");
    const Operand c = op.in(cos, "cos");
    const Operand s = op.in(sin, "sin");
    op.need(op.word(rotaryMode, "rotaryMode") == "half", "a mode other than half");
    op.need((layout == 1 && q.rank() == 4) || (layout == 4 && q.rank() == 3), "a layout other than BSND or TND");
    op.need(is_float(q.type) && q.type == k.type && k.type == c.type && c.type == s.type, "not of one float type");
    op.need(c.dims == s.dims && (q.dim(-1) == 64 || q.dim(-1) == 128), "the head size is neither 64 nor 128");
    const RopeShape of_q = rope_shape(op, q, c);
    const RopeShape of_k = rope_shape(op, k, c);
    op.need(!of_q.heads_first && !of_k.heads_first, "BNSD");
    op.runs([=](OpRun& run) {
      run.store(q, rotated(run.floats(q), run.floats(c), run.floats(s), of_q));
      run.store(k, rotated(run.floats(k), run.floats(c), run.floats(s), of_k));
    });
  });
}

// The first half is the gate.
ASCEND_FAKE_OP(SwiGlu)
aclnnStatus aclnnSwiGluGetWorkspaceSize(const aclTensor* x, int64_t dim, aclTensor* out, uint64_t* size,
                                        aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(SwiGlu, [&](OpCall& op) {
    const Operand input = op.in(x, "x");
    const Operand y = op.out(out, "out");
    const int64_t place = dimension(op, dim, input.rank());
    op.need(is_float(input.type) && input.type == y.type, "not of one float type");
    op.need(input.dense() && y.dense(), "not dense");
    op.need(input.dim(place) % 2 == 0, "the split dimension is odd");
    Shape expected = input.dims;
    expected[static_cast<size_t>(place)] /= 2;
    op.need(y.dims == expected, "the output is not half of the input");
    op.runs([=](OpRun& run) {
      const Around shape = around(input.dims, place);
      const int64_t half = shape.extent / 2 * shape.inner;
      const std::vector<float> values = run.floats(input);
      std::vector<float> result;
      for (int64_t o = 0; o < shape.outer; ++o) {
        const float* gate = values.data() + 2 * o * half;
        for (int64_t i = 0; i < half; ++i) result.push_back(gate[i] / (1.0f + std::exp(-gate[i])) * gate[half + i]);
      }
      run.store(y, result);
    });
  });
}

}  // namespace ascend_fake
