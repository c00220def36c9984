#include "model/weight_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/error.h"
#include "device/blocks.h"
#include "device/taking_memory.h"

namespace espalier {
namespace {

// Row (half, i) of a head is file row (i, half).
void restore_half_split_rows(std::span<std::byte> bytes, const HeadRows& rows) {
  const std::size_t row = bytes.size() / static_cast<std::size_t>(rows.rows());
  const std::vector<std::byte> from(bytes.begin(), bytes.end());
  const std::int64_t half = rows.head_size / 2;
  for (std::int64_t r = 0; r < rows.rows(); ++r) {
    const std::int64_t head = r / rows.head_size, within = r % rows.head_size;
    const std::int64_t source = head * rows.head_size + within % half * 2 + within / half;
    std::memcpy(bytes.data() + static_cast<std::size_t>(r) * row, from.data() + static_cast<std::size_t>(source) * row,
                row);
  }
}

// The bytes of a file need not be aligned.
template <typename Integer>
std::vector<std::int64_t> widened(std::span<const std::byte> bytes) {
  std::vector<Integer> values(bytes.size() / sizeof(Integer));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Integer));
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<std::int64_t> widened_integers(const TensorInfo& info) {
  check(info.type == DType::i64 || info.type == DType::i32, "widened_integers: expected integers");
  return info.type == DType::i64 ? widened<std::int64_t>(info.bytes) : widened<std::int32_t>(info.bytes);
}

// A matrix on its way to the device: bytes of the file, or our own copy where they had to change.
struct WeightReader::Matrix {
  const TensorInfo& info;
  WeightPart part;
  std::vector<std::byte> owned = {};

  // Row by row through float.
  void convert(DType type) {
    const auto from_row = static_cast<std::size_t>(row_bytes(part.type, part.inputs));
    const auto to_row = static_cast<std::size_t>(row_bytes(type, part.inputs));
    std::vector<float> values(static_cast<std::size_t>(part.inputs));
    std::vector<std::byte> bytes(to_row * static_cast<std::size_t>(part.outputs));
    for (std::size_t n = 0; n < static_cast<std::size_t>(part.outputs); ++n) {
      widen_row(part.type, part.bytes.subspan(n * from_row, from_row), values);
      const auto to = std::span(bytes).subspan(n * to_row, to_row);
      if (type == DType::q8_0) {
        quantise_row_q8_0(values, to);
      } else {
        std::ranges::copy(std::as_bytes(std::span(values)), to.begin());
      }
    }
    owned = std::move(bytes);
    part.type = type;
    part.bytes = owned;
  }

  void pick(std::span<const std::int32_t> rows) {
    const auto row = static_cast<std::size_t>(row_bytes(part.type, part.inputs));
    std::vector<std::byte> bytes;
    bytes.reserve(rows.size() * row);
    for (std::int32_t n : rows) {
      const auto from = part.bytes.subspan(static_cast<std::size_t>(n) * row, row);
      bytes.insert(bytes.end(), from.begin(), from.end());
    }
    owned = std::move(bytes);
    part.outputs = static_cast<std::int64_t>(rows.size());
    part.bytes = owned;
  }

  std::span<std::byte> own_bytes() {
    if (owned.empty()) owned.assign(part.bytes.begin(), part.bytes.end());
    part.bytes = owned;
    return owned;
  }
};

std::unique_ptr<const Weight> WeightReader::matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs) {
  const Matrix matrix = read_matrix(name, outputs, inputs);
  return load(std::span(&matrix, 1));
}

std::unique_ptr<const Weight> WeightReader::matrix_rows(std::string_view name, std::int64_t outputs,
                                                        std::int64_t inputs, std::span<const std::int32_t> rows) {
  for (std::int32_t row : rows) check(row >= 0 && row < outputs, "row {} of {}: no row of {}", row, name, outputs);
  Matrix matrix = find_matrix(name, outputs, inputs);
  matrix.pick(rows);
  convert(matrix);
  return load(std::span(&matrix, 1));
}

std::unique_ptr<const Weight> WeightReader::stacked(std::string_view first, std::string_view second,
                                                    std::int64_t outputs, std::int64_t inputs) {
  const Matrix both[] = {read_matrix(first, outputs, inputs), read_matrix(second, outputs, inputs)};
  return load(both);
}

std::unique_ptr<const Weight> WeightReader::rotated_matrix(std::string_view name, const HeadRows& rows,
                                                           std::int64_t inputs) {
  Matrix matrix = read_matrix(name, rows.rows(), inputs);
  if (rows.interleaved) restore_half_split_rows(matrix.own_bytes(), rows);
  return load(std::span(&matrix, 1));
}

// The device has its own copy then, so the file's pages can go: each weight is in memory once.
std::unique_ptr<const Weight> WeightReader::load(std::span<const Matrix> matrices) {
  std::vector<WeightPart> parts;
  for (const Matrix& matrix : matrices) parts.push_back(matrix.part);
  auto weight =
      taking_memory_for(fmt::format("weights {}", matrices[0].info.name), [&] { return device_.load_weight(parts); });
  if (std::ranges::any_of(parts, [](const WeightPart& part) { return is_float(part.type); })) ++float_matrices_;
  for (const Matrix& matrix : matrices) source_.release(matrix.info);
  return weight;
}

Tensor WeightReader::rotated_vector(std::string_view name, const HeadRows& rows) {
  std::vector<float> values = read_vector(name, rows.rows());
  if (rows.interleaved) restore_half_split_rows(std::as_writable_bytes(std::span(values)), rows);
  return to_device(values);
}

Tensor WeightReader::vector(std::string_view name, std::int64_t size) {
  return to_device(read_vector(name, size));
}

std::vector<std::string_view> WeightReader::unread() const {
  std::vector<std::string_view> names;
  for (const TensorInfo& info : source_.tensors())
    if (!read_.contains(info.name)) names.push_back(info.name);
  return names;
}

const TensorInfo& WeightReader::find(std::string_view name, const std::vector<std::int64_t>& shape) {
  const TensorInfo* info = source_.find(name);
  if (!info)
    input_error("{}: tensor {} is missing, expected shape [{}]", source_.description(), name, fmt::join(shape, ", "));
  if (info->shape != shape)
    input_error("{}: tensor {}: expected shape [{}], got [{}]", source_.description(), name, fmt::join(shape, ", "),
                fmt::join(info->shape, ", "));
  if (!is_float(info->type) && !is_block_quantised(info->type))
    input_error("{}: tensor {}: expected weights, got {}", source_.description(), name, espalier::name(info->type));
  read_.emplace(name);
  return *info;
}

WeightReader::Matrix WeightReader::read_matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs) {
  Matrix matrix = find_matrix(name, outputs, inputs);
  convert(matrix);
  return matrix;
}

WeightReader::Matrix WeightReader::find_matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs) {
  const TensorInfo& info = find(name, {outputs, inputs});
  return {info, {info.type, outputs, inputs, info.bytes}};
}

void WeightReader::convert(Matrix& matrix) const {
  const DType type = loaded_type(matrix.info, matrix.part.inputs);
  if (type != matrix.info.type) matrix.convert(type);
}

DType WeightReader::loaded_type(const TensorInfo& info, std::int64_t inputs) const {
  if (mode_ == WeightMode::f32) return DType::f32;
  if (mode_ != WeightMode::q8_0 || !is_float(info.type)) return info.type;
  if (inputs % traits(DType::q8_0).block_elements == 0) return DType::q8_0;
  if (odd_rows_ == OddRows::refuse)
    input_error("{}: tensor {}: {} columns cannot be quantised to q8_0, expected a multiple of 32",
                source_.description(), info.name, inputs);
  return info.type;
}

DType WeightReader::precision(std::string_view name) const {
  const TensorInfo* info = source_.find(name);
  check(info && info->shape.size() == 2, "precision of {}: expected a matrix that was read", name);
  return is_float(info->type) ? loaded_type(*info, info->shape[1]) : info->type;
}

std::vector<float> WeightReader::read_vector(std::string_view name, std::int64_t size) {
  const TensorInfo& info = find(name, {size});
  if (!is_float(info.type))
    input_error("{}: tensor {}: expected f32, f16 or bf16, got {}", source_.description(), name,
                espalier::name(info.type));
  std::vector<float> values(static_cast<std::size_t>(size));
  widen_row(info.type, info.bytes, values);
  return values;
}

Tensor WeightReader::to_device(const std::vector<float>& values) {
  Tensor tensor = device_.tensor(DType::f32, {static_cast<std::int64_t>(values.size())});
  upload<float>(device_, values, tensor);
  return tensor;
}

}  // namespace espalier
