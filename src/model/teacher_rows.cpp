#include "model/teacher_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "device/blocks.h"
#include "model/draft_vocabulary.h"

namespace espalier {
namespace {

constexpr std::int64_t kRows = 64;
constexpr std::size_t kBlock = 32;
constexpr double kFloatError = 1.0 / 256;  // twice what rounding to bf16, the coarsest float, may change

int bits_of(DType type) {
  switch (type) {
    case DType::q4_0:
    case DType::q4_1:
    case DType::q4_k: return 4;
    case DType::q5_0:
    case DType::q5_1:
    case DType::q5_k: return 5;
    case DType::q6_k: return 6;
    default: return 8;
  }
}

// The square of the error that rounding a block to `type` may leave, twice a uniform one in the mean: quantisers that
// weigh their errors leave more than the best.
double allowed_square(std::span<const float> block, DType type) {
  double largest = 0, size = 0;
  for (float value : block) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
    size += static_cast<double>(value) * value;
  }
  const double floats = kFloatError * kFloatError * size;
  if (is_float(type)) return floats;
  const double step = 2 * largest / ((1 << bits_of(type)) - 1);
  return floats + static_cast<double>(block.size()) * step * step / 3;
}

struct Difference {
  double square = 0, allowed = 0, size = 0;

  void add(std::span<const float> copy, std::span<const float> teacher, DType type) {
    for (std::size_t i = 0; i < copy.size(); ++i) {
      const double apart = static_cast<double>(copy[i]) - teacher[i];
      square += apart * apart;
      size += static_cast<double>(teacher[i]) * teacher[i];
    }
    for (std::size_t i = 0; i < copy.size(); i += kBlock)
      allowed += allowed_square(copy.subspan(i, std::min(kBlock, copy.size() - i)), type);
  }
};

std::vector<std::int32_t> spread_over(std::int64_t rows) {
  std::vector<std::int32_t> chosen;
  const std::int64_t count = std::min(rows, kRows);
  for (std::int64_t i = 0; i < count; ++i) chosen.push_back(static_cast<std::int32_t>(i * rows / count));
  return chosen;
}

}  // namespace

void check_rows_of_teacher(Device& device, const TensorInfo& copy, const TeacherMatrix& teacher, std::string_view file,
                           std::string_view name) {
  const std::int64_t rows = teacher.weight->outputs(), width = teacher.weight->inputs();
  if (copy.shape.size() != 2 || copy.shape[0] < rows || copy.shape[1] != width ||
      !(is_float(copy.type) || is_block_quantised(copy.type)))
    input_error("{}: {}: expected a copy of the teacher's [{}, {}], got {} [{}]", file, name, rows, width,
                espalier::name(copy.type), fmt::join(copy.shape, ", "));
  const std::vector<std::int32_t> chosen = spread_over(rows);
  const std::vector<float> known = widened_rows(device, *teacher.weight, chosen);
  const auto row = static_cast<std::size_t>(row_bytes(copy.type, width)), columns = static_cast<std::size_t>(width);
  std::vector<float> values(columns);
  Difference difference;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    widen_row(copy.type, copy.bytes.subspan(static_cast<std::size_t>(chosen[i]) * row, row), values);
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
      input_error("{}: {}: row {}: expected finite numbers", file, name, chosen[i]);
    difference.add(values, std::span(known).subspan(i * columns, columns), teacher.precision);
  }
  if (difference.square <= difference.allowed) return;
  const double size = std::max(difference.size, 1e-30);  // a teacher of zeros
  input_error(
      "{}: {}: differs from the teacher's by {:.2g} of its size, expected {:.2g} at most: a head of another teacher",
      file, name, std::sqrt(difference.square / size), std::sqrt(difference.allowed / size));
}

}  // namespace espalier
