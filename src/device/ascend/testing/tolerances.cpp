#include "device/ascend/testing/tolerances.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/conformance/bounds.h"

namespace espalier::ascend {
namespace {

constexpr double kAnythingGoes = std::numeric_limits<double>::infinity();
constexpr double kFlushed = 0x1p-126;     // what is smaller may be 0
constexpr double kLargestExponent = 104;  // exp of a float is 0 or infinite beyond: roundings of its argument
constexpr double kFew = 8;                // roundings beside those of a sum

double rounding_of(AclType type) {
  return type == AclType::f16 ? 0x1p-11 : type == AclType::bf16 ? 0x1p-8 : kRounding;
}

// Of both sides.
double of_sum(double terms) {
  return 2 * (terms + kFew) * kRounding;
}

double largest(const std::vector<double>& values) {
  double found = 0;
  for (double value : values) found = std::max(found, std::fabs(value));
  return found;
}

// Numbers whose squares or products are no floats: whoever computes with them may do as it likes. A score of -inf is
// that of a hidden key.
bool are_strange(const std::vector<double>& values) {
  return !std::ranges::all_of(values, [](double value) {
    return value < 1e15 && (value > -1e15 || value == -std::numeric_limits<double>::infinity());
  });
}

double norm(const double* values, std::int64_t count, std::int64_t stride) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i * stride] * values[i * stride];
  return std::sqrt(sum);
}

// A sum of k products is within k roundings of the sum of their magnitudes, which is at most |row| |column|.
Tolerance of_product(const Arguments& arguments, const Layout& out, const ReadElements& read) {
  const Layout &a = *arguments.tensors[0], &b = *arguments.tensors[1];
  const std::int64_t rows = out.sizes.end()[-2], columns = out.sizes.back(), inner = a.sizes.back();
  const std::int64_t matrices = out.elements() / (rows * columns);
  const std::vector<double> left = read(a), right = read(b);
  const double of_operands =
      arguments.may_round_f32 && a.type == AclType::f32 ? 4 * 0x1p-11 : 0;  // both, on both sides
  const double of_terms = of_sum(static_cast<double>(inner)) + of_operands;
  Tolerance tolerance{.relative = 2 * rounding_of(out.type)};
  for (std::int64_t m = 0; m < matrices; ++m) {
    std::vector<double> of_columns;
    for (std::int64_t c = 0; c < columns; ++c)
      of_columns.push_back(norm(right.data() + m * inner * columns + c, inner, columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      const double of_row = norm(left.data() + (m * rows + r) * inner, inner, 1);
      for (double of_column : of_columns) tolerance.absolute.push_back(of_terms * of_row * of_column + kFlushed);
    }
  }
  return tolerance;
}

// What a row of attention sees: the largest norm among its keys and the largest of its values.
struct Seen {
  double keys = 0;
  double key = 0;
  double value = 0;
};

// The fused operator's operands, as the device gives them: [1, rows, heads, dim], pages [blocks, size, kv heads * dim],
// a mask [1, 1, rows, keys] and a table [1, blocks].
struct Attention {
  Attention(const Arguments& arguments, const ReadElements& read)
      : query(*arguments.tensors[0]),
        key(arguments.lists[0][0]),
        q(read(query)),
        k(read(key)),
        v(read(arguments.lists[1][0])),
        hidden(read(*arguments.tensors[kMask])),
        table(read(*arguments.tensors[kBlockTable])) {}

  Seen seen(std::int64_t row, std::int64_t head) const {
    const std::int64_t width = key.sizes[2], page = key.sizes[1], group = heads() * dim() / width;
    const std::int64_t columns = std::ssize(hidden) / query.sizes[1];
    Seen found;
    for (std::int64_t c = 0; c < columns; ++c) {
      if (hidden[static_cast<std::size_t>(row * columns + c)] != 0) continue;
      const auto block = static_cast<std::int64_t>(table[static_cast<std::size_t>(c / page)]);
      const std::int64_t begin = (block * page + c % page) * width + head / group * dim();
      ++found.keys;
      found.key = std::max(found.key, norm(k.data() + begin, dim(), 1));
      for (std::int64_t d = 0; d < dim(); ++d)
        found.value = std::max(found.value, std::fabs(v[static_cast<std::size_t>(begin + d)]));
    }
    return found;
  }
  std::int64_t heads() const { return query.sizes[2]; }
  std::int64_t dim() const { return query.sizes[3]; }

  static constexpr std::size_t kMask = 2, kBlockTable = 10;  // among the tensors of all versions
  const Layout &query, &key;
  std::vector<double> q, k, v, hidden, table;
};

// A score that is wrong by d changes each weight, and their sum, by a factor of at most exp(d). Weights are rounded to
// the type of the values before they are multiplied, and so is the result.
Tolerance of_attention(const Arguments& arguments, const Layout& out, const ReadElements& read) {
  const Attention attention(arguments, read);
  const double of_type = rounding_of(out.type);
  const double of_weight = out.type == AclType::f16 ? 0x1p-25 : 0;  // one that is below f16's digits
  const std::int64_t dim = attention.dim();
  Tolerance tolerance;
  for (std::int64_t r = 0; r < attention.query.sizes[1]; ++r)
    for (std::int64_t h = 0; h < attention.heads(); ++h) {
      const Seen seen = attention.seen(r, h);
      const double of_query = norm(attention.q.data() + (r * attention.heads() + h) * dim, dim, 1);
      const double of_score = arguments.numbers[0] * of_query * seen.key * of_sum(static_cast<double>(dim));
      const double of_weights = std::expm1(2 * of_score) + 4 * of_type + of_sum(seen.keys) + seen.keys * of_weight;
      tolerance.absolute.insert(tolerance.absolute.end(), static_cast<std::size_t>(dim),
                                seen.value * of_weights + of_weight);
    }
  return tolerance;
}

// Operators that compute every element, or every row, from numbers that may be strange.
Tolerance of_rows(std::string_view op, const Arguments& arguments, const ReadElements& read) {
  const Layout& x = *arguments.tensors[0];
  const std::vector<double> values = read(x);
  if (are_strange(values)) return {.relative = kAnythingGoes};
  const auto length = static_cast<double>(x.sizes.back());
  if (op == "aclnnRmsNorm") return {.relative = of_sum(length), .absolute = {kFlushed}};
  if (op == "aclnnSoftmax") return {.relative = of_sum(length + kLargestExponent), .absolute = {kFlushed}};
  if (op == "aclnnLogSumExp") return {.relative = of_sum(0), .absolute = {of_sum(length + kLargestExponent)}};
  if (op == "aclnnRotaryPositionEmbedding") {
    const double turned = std::max(largest(read(*arguments.tensors[1])), largest(read(*arguments.tensors[2])));
    return {.relative = 0, .absolute = {of_sum(0) * largest(values) * turned + kFlushed}};
  }
  // Silu and SwiGlu: a factor below 1 that may be flushed, times x.
  const double large = std::max(1.0, largest(values));
  return {.relative = of_sum(kLargestExponent), .absolute = {kLargestExponent * kFlushed * large * large}};
}

}  // namespace

double Tolerance::of(std::size_t element, double a, double b) const {
  const double own = absolute.empty() ? 0 : absolute[absolute.size() == 1 ? 0 : element];
  return relative == 0 ? own : own + relative * std::max(std::fabs(a), std::fabs(b));
}

Tolerance tolerance_of(std::string_view op, const Arguments& arguments, const Layout& out, const ReadElements& read) {
  if (op == "aclnnMm" || op == "aclnnBatchMatMul") return of_product(arguments, out, read);
  if (op.starts_with("aclnnFusedInferAttentionScore")) return of_attention(arguments, out, read);
  for (std::string_view rows :
       {"aclnnRmsNorm", "aclnnSoftmax", "aclnnLogSumExp", "aclnnRotaryPositionEmbedding", "aclnnSilu", "aclnnSwiGlu"})
    if (op == rows) return of_rows(op, arguments, read);
  for (std::string_view rounded : {"aclnnInplaceAdd", "aclnnMuls", "aclnnInplaceMuls"})
    if (op == rounded) return {.relative = 2 * rounding_of(out.type), .absolute = {kFlushed}};
  return {};
}

}  // namespace espalier::ascend
