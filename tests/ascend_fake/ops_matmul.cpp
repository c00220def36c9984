// Matrix products (F28 to F30) and the private NZ layout of weights (F13).
#include <algorithm>

#include "numbers.h"
#include "op.h"

namespace ascend_fake {
namespace {

// In what the matrix unit takes its inputs.
enum class Inputs { kFloat, kHf32, kF16, kAsTheyAre };

struct Product {
  Operand a;  // [batch.., rows, inner]
  Operand b;  // [batch.., inner, columns]
  Operand y;
  Inputs inputs = Inputs::kAsTheyAre;
  bool round_to_f16 = false;  // the result, before it is written as f32
};

void check_matmul_chip(const OpCall& op, const Operand& a, int8_t math) {
  if (!op.fake().is_soc("Ascend310P")) return;
  op.need(a.type != ACL_BF16, "no bf16 on this chip");
  op.need(a.type != ACL_FLOAT || math == ALLOW_FP32_DOWN_PRECISION,
          "f32 only with ALLOW_FP32_DOWN_PRECISION on this chip");
}

// F28: the types that the unit takes, and what it makes of them.
void choose_inputs(const OpCall& op, Product& product, int8_t math) {
  const aclDataType a = product.a.type;
  const aclDataType b = product.b.type;
  const aclDataType y = product.y.type;
  op.need(math >= KEEP_DTYPE && math <= 4, "an unknown cubeMathType");
  op.violation(28, math == 4, "USE_FP32_ADD, of which nothing is known");
  op.need(is_float(a) && is_float(b) && is_float(y), "not float types");
  check_matmul_chip(op, product.a, math);
  const bool mixed_types = a == ACL_FLOAT && b == ACL_FLOAT16;
  op.need(a == b || mixed_types, std::string("inputs of ") + name_of(a) + " and " + name_of(b));
  op.violation(28, math == USE_FP16 && a == ACL_BF16, "USE_FP16 with bf16: documents refuse it, sources ignore it");
  if (a == ACL_FLOAT) {
    op.need(y == ACL_FLOAT, "f32 inputs and an output of 16 bits");
    product.inputs = math == USE_FP16 ? Inputs::kF16 : math == KEEP_DTYPE ? Inputs::kFloat : Inputs::kHf32;
  } else {
    op.need(y == a || (y == ACL_FLOAT && op.fake().options.f32_from_16_bit != 0),
            std::string("an output of ") + name_of(y) + " from " + name_of(a));
  }
  product.round_to_f16 = math == USE_FP16 && a != ACL_BF16 && y == ACL_FLOAT;
}

void take_in(std::vector<float>& values, Inputs inputs) {
  if (inputs == Inputs::kHf32) std::transform(values.begin(), values.end(), values.begin(), to_hf32);
  if (inputs == Inputs::kF16) {
    std::transform(values.begin(), values.end(), values.begin(), [](float value) { return widened(to_f16(value)); });
  }
}

// The second matrix with its columns one after the other, as a dot product wants them.
Operand columns_first(const Operand& b) {
  Operand turned = b;
  const size_t last = b.dims.size() - 1;
  std::swap(turned.dims[last], turned.dims[last - 1]);
  std::swap(turned.strides[last], turned.strides[last - 1]);
  return turned;
}

// Sums over keys come from BatchMatMul, whose inner extent is a context there.
using Dot = float (*)(std::span<const float>, std::span<const float>, const SumOrder&);

// Matrix by matrix of a batch, and of each some columns at a time: a vocabulary's weights are never all widened at
// once.
class Multiplication {
 public:
  Multiplication(OpRun& run, const Product& product, Dot dot_product)
      : run_(run), product_(product), dot_(dot_product), b_(columns_first(product.b)), a_(run.floats(product.a)) {
    take_in(a_, product.inputs);
    run.need_written(product.b);
    for (int64_t row = 0; row < rows_; ++row) orders_.push_back(run.order(row, rows_));
    if (product.b.format == ACL_FORMAT_FRACTAL_NZ) converted_ = run.floats_of_any(b_);
  }

  void multiply(int64_t from_a, int64_t from_b, float* y) {
    for (int64_t first = 0; first < columns_; first += kColumns) {
      const int64_t count = std::min(kColumns, columns_ - first);
      const std::vector<float> b = some_columns(from_b, first, count);
      for (int64_t column = 0; column < count; ++column) {
        for (int64_t row = 0; row < rows_; ++row) {
          const float* left = a_.data() + (from_a * rows_ + row) * inner_;
          y[row * columns_ + first + column] =
              dot_({left, static_cast<size_t>(inner_)}, {b.data() + column * inner_, static_cast<size_t>(inner_)},
                   orders_[static_cast<size_t>(row)]);
        }
      }
    }
  }

 private:
  static constexpr int64_t kColumns = 64;

  std::vector<float> some_columns(int64_t matrix, int64_t first, int64_t count) {
    if (!converted_.empty())
      return {converted_.begin() + first * inner_, converted_.begin() + (first + count) * inner_};
    Operand columns = b_;
    for (size_t i = b_.dims.size() - 2; i-- > 0; matrix /= b_.dims[i])
      columns.offset += matrix % b_.dims[i] * b_.strides[i];
    const size_t last = b_.dims.size() - 1;
    columns.offset += first * b_.strides[last - 1];
    columns.dims = {count, inner_};
    columns.strides = {b_.strides[last - 1], b_.strides[last]};
    std::vector<float> values = run_.floats_of_any(columns);
    take_in(values, product_.inputs);
    return values;
  }

  OpRun& run_;
  const Product& product_;
  Dot dot_;
  Operand b_;
  std::vector<float> a_;
  std::vector<float> converted_;
  std::vector<SumOrder> orders_;
  int64_t rows_ = product_.a.dim(-2);
  int64_t inner_ = product_.a.dim(-1);
  int64_t columns_ = product_.b.dim(-1);
};

// The matrix of every place of the batch.
std::vector<int64_t> matrices(const Operand& operand, const Shape& batch) {
  const Shape own(operand.dims.begin(), operand.dims.end() - 2);
  return broadcast_indices(own.empty() ? Shape{1} : own, batch);
}

void multiply(OpRun& run, const Product& product, const Shape& batch, Dot dot_product) {
  Multiplication multiplication(run, product, dot_product);
  const std::vector<int64_t> from_a = matrices(product.a, batch);
  const std::vector<int64_t> from_b = matrices(product.b, batch);
  std::vector<float> y(static_cast<size_t>(product.y.elements()));
  const size_t one = y.size() / from_a.size();
  for (size_t m = 0; m < from_a.size(); ++m) multiplication.multiply(from_a[m], from_b[m], y.data() + m * one);
  if (product.round_to_f16) take_in(y, Inputs::kF16);
  run.store(product.y, y);
}

void matmul(OpCall& op, const Product& chosen, int8_t math, Dot dot_product) {
  Product product = chosen;
  const Operand& a = product.a;
  const Operand& b = product.b;
  op.need(a.rank() >= 2 && b.rank() >= 2 && a.rank() <= 6 && b.rank() <= 6, "matrices of another rank");
  op.need(a.dim(-1) == b.dim(-2), "inner extents " + std::to_string(a.dim(-1)) + " and " + std::to_string(b.dim(-2)));
  choose_inputs(op, product, math);
  op.violation(28, !product.y.dense(), "a strided output, of which nobody knows whether it works");
  const Shape batch_a(a.dims.begin(), a.dims.end() - 2);
  const Shape batch_b(b.dims.begin(), b.dims.end() - 2);
  const Shape batch = broadcast(op, batch_a, batch_b);
  Shape expected = batch;
  expected.insert(expected.end(), {a.dim(-2), b.dim(-1)});
  op.need(product.y.dims == expected, "the output is " + text_of(product.y.dims) + ", expected " + text_of(expected));
  op.runs([product, batch = batch.empty() ? Shape{1} : batch, dot_product](OpRun& run) {
    multiply(run, product, batch, dot_product);
  });
}

Product product_of(OpCall& op, const aclTensor* self, const aclTensor* mat2, aclTensor* out) {
  Product product;
  product.a = op.in(self, "self");
  product.b = op.weight(mat2, "mat2");
  product.y = op.out(out, "out");
  return product;
}

void need_rank(const OpCall& op, const Product& product, int64_t rank) {
  op.need(product.a.rank() == rank && product.b.rank() == rank, "the matrices are not " + std::to_string(rank) + "-D");
}

void need_nz(const OpCall& op, const Product& product) {
  op.need(product.b.format == ACL_FORMAT_FRACTAL_NZ, "the weight is not NZ");
  op.need(product.b.rank() == 2, "the weight is not 2-D");
}

NzMatrix nz_of(const Operand& weight) {
  NzMatrix matrix{.rows = weight.dim(0), .columns = weight.dim(1), .type = weight.type};
  matrix.bytes = static_cast<uint64_t>(matrix.elements() * weight.element_bytes());
  return matrix;
}

// What x * ((w + offset) * scale) needs (F30).
struct Quantised {
  Operand x;
  Operand weight;
  Operand scale;
  std::optional<Operand> offset;
  std::optional<Operand> bias;
  Operand y;
  int64_t group = 0;
};

void check_quantised(const OpCall& op, const Quantised& q) {
  const int64_t k = q.x.dim(-1);
  const int64_t n = q.weight.dim(-1);
  op.need(is_16_bit_float(q.x.type) && q.x.type == q.y.type && q.x.type == q.scale.type,
          "x, scale and y of one 16-bit type");
  op.need(q.weight.type == ACL_INT8 || q.weight.type == ACL_INT4, "the weight is neither i8 nor i4");
  op.need(q.x.rank() == 2 && q.weight.rank() == 2 && q.weight.dim(0) == k, "x [m, k] and weight [k, n]");
  op.need(q.y.dims == Shape{q.x.dim(0), n}, "y is not [m, n]");
  op.need(k <= 65535 && n <= 65535, "k or n above 65535");
  op.need(q.group % 32 == 0 && q.group >= 32 && q.group < k, "a group that is no multiple of 32 in [32, k - 1]");
  const Shape scales{(k + q.group - 1) / q.group, n};
  op.need(q.scale.dims == scales, "the scale is not " + text_of(scales));
  op.need(!q.offset || (q.offset->dims == scales && q.offset->type == q.x.type), "the offset is not like the scale");
  op.need(q.weight.transposed() && q.scale.transposed(), "strides other than a transposition");
  const aclDataType bias = q.x.type == ACL_BF16 ? ACL_FLOAT : ACL_FLOAT16;
  op.need(!q.bias || (q.bias->elements() == n && q.bias->type == bias), "a bias of another type or length");
}

void multiply_quantised(OpRun& run, const Quantised& q) {
  const std::vector<float> x = run.floats(q.x);
  const std::vector<float> scale = run.floats(q.scale);
  const std::vector<float> offset = q.offset ? run.floats(*q.offset) : std::vector<float>(scale.size(), 0.0f);
  const std::vector<float> bias = q.bias ? run.floats(*q.bias) : std::vector<float>();
  std::vector<float> w = run.floats(columns_first(q.weight));
  const size_t k = static_cast<size_t>(q.x.dim(-1));
  const size_t n = static_cast<size_t>(q.weight.dim(-1));
  for (size_t i = 0; i < w.size(); ++i) {
    const size_t place = i % k / static_cast<size_t>(q.group) * n + i / k;
    const float value = (w[i] + offset[place]) * scale[place];
    w[i] = q.x.type == ACL_BF16 ? widened(to_bf16(value)) : widened(to_f16(value));
  }
  const int64_t rows = q.x.dim(0);
  std::vector<float> y;
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < n; ++column) {
      const std::span<const float> left(x.data() + static_cast<size_t>(row) * k, k);
      const float product = dot(left, {w.data() + column * k, k}, run.order(row, rows));
      y.push_back(product + (bias.empty() ? 0.0f : bias[column]));
    }
  }
  run.store(q.y, y);
}

}  // namespace

ASCEND_FAKE_OP(Mm)
aclnnStatus aclnnMmGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType,
                                    uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Mm, [&](OpCall& op) {
    const Product product = product_of(op, self, mat2, out);
    need_rank(op, product, 2);
    matmul(op, product, cubeMathType, dot);
  });
}

ASCEND_FAKE_OP(Matmul)
aclnnStatus aclnnMatmulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out,
                                        int8_t cubeMathType, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(Matmul,
                               [&](OpCall& op) { matmul(op, product_of(op, self, mat2, out), cubeMathType, dot); });
}

ASCEND_FAKE_OP(BatchMatMul)
aclnnStatus aclnnBatchMatMulGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out,
                                             int8_t cubeMathType, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(BatchMatMul, [&](OpCall& op) {
    const Product product = product_of(op, self, mat2, out);
    need_rank(op, product, 3);
    matmul(op, product, cubeMathType, dot_over_keys);
  });
}

ASCEND_FAKE_OP_SINCE(MatmulWeightNz, 85)
aclnnStatus aclnnMatmulWeightNzGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out,
                                                int8_t cubeMathType, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(MatmulWeightNz, [&](OpCall& op) {
    const Product product = product_of(op, self, mat2, out);
    need_nz(op, product);
    matmul(op, product, cubeMathType, dot);
  });
}

ASCEND_FAKE_OP_SINCE(BatchMatMulWeightNz, 85)
aclnnStatus aclnnBatchMatMulWeightNzGetWorkspaceSize(const aclTensor* self, const aclTensor* mat2, aclTensor* out,
                                                     int8_t cubeMathType, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(BatchMatMulWeightNz, [&](OpCall& op) {
    const Product product = product_of(op, self, mat2, out);
    need_nz(op, product);
    op.need(product.a.rank() == 3, "the first matrix is not 3-D");
    matmul(op, product, cubeMathType, dot_over_keys);
  });
}

ASCEND_FAKE_OP(WeightQuantBatchMatmulV2)
aclnnStatus aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(const aclTensor* x, const aclTensor* weight,
                                                          const aclTensor* antiquantScale,
                                                          const aclTensor* antiquantOffset, const aclTensor* quantScale,
                                                          const aclTensor* quantOffset, const aclTensor* bias,
                                                          int antiquantGroupSize, const aclTensor* y, uint64_t* size,
                                                          aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(WeightQuantBatchMatmulV2, [&](OpCall& op) {
    op.unused(quantScale, "quantScale");
    op.unused(quantOffset, "quantOffset");
    Quantised q;
    q.x = op.in(x, "x");
    q.weight = op.weight(weight, "weight");
    q.scale = op.weight(antiquantScale, "antiquantScale");
    q.offset = op.maybe_in(antiquantOffset, "antiquantOffset");
    q.bias = op.maybe_in(bias, "bias");
    q.y = op.out(y, "y");
    q.group = antiquantGroupSize;
    check_quantised(op, q);
    op.runs([q](OpRun& run) { multiply_quantised(run, q); });
  });
}

aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray* tensorShape, aclDataType dataType,
                                             uint64_t* weightTensorSize) {
  const Symbol symbol{.name = "aclnnCalculateMatmulWeightSizeV2", .needs = Needs::kInit, .of_operators = true};
  return answer(symbol, [&](Fake& f) {
    if (tensorShape == nullptr || weightTensorSize == nullptr) return kNull;
    const IntArray* shape = f.arrays.find(tensorShape);
    if (shape == nullptr || shape->values.size() != 2) return kInvalid;
    if (!is_16_bit_float(dataType) && dataType != ACL_INT8) return kInvalid;
    const NzMatrix matrix{.rows = shape->values[0], .columns = shape->values[1], .type = dataType};
    *weightTensorSize = static_cast<uint64_t>(matrix.elements());
    return 0;
  });
}

// In place: the memory must have room for whole blocks.
ASCEND_FAKE_OP(TransMatmulWeight)
aclnnStatus aclnnTransMatmulWeightGetWorkspaceSize(aclTensor* mmWeightRef, uint64_t* size, aclOpExecutor** executor) {
  return ASCEND_FAKE_PHASE_ONE(TransMatmulWeight, [&](OpCall& op) {
    op.copies_inside();
    const Operand weight = op.in_out(mmWeightRef, "mmWeightRef");
    op.need(weight.rank() == 2 && weight.dense() && weight.offset == 0, "the weight is not a dense matrix");
    op.need(is_16_bit_float(weight.type) || weight.type == ACL_INT8, "the weight is not f16, bf16 or i8");
    const NzMatrix matrix = nz_of(weight);
    const Range room{weight.address, weight.address + matrix.bytes};
    const bool fits = op.fake().memory.containing(room) != nullptr;
    op.violation(13, !fits, "no room for the padded blocks of the weight");
    op.need(fits, "no room for the padded blocks of the weight");
    op.launched([=](Fake& f) { f.memory.at(weight.address)->converted[weight.address] = matrix; });
    op.runs([=](OpRun& run) {
      const std::vector<uint8_t> plain = run.raw(weight);
      const int64_t bytes = weight.element_bytes();
      Operand padded = weight;
      padded.dims = {matrix.elements()};
      padded.strides = {1};
      std::vector<uint8_t> blocks(static_cast<size_t>(matrix.bytes), 0);
      for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
        const int64_t place = matrix.place(i / matrix.columns, i % matrix.columns);
        std::copy_n(plain.begin() + i * bytes, bytes, blocks.begin() + place * bytes);
      }
      run.store_raw(padded, blocks);
    });
  });
}

}  // namespace ascend_fake
