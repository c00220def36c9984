// Reads the weights of a network by name from any TensorSource onto a device: every tensor is checked for shape and
// type and converted as the weight mode says. It remembers which names were read: what a file has and nobody asked for
// shows a network that is not the one we compute. Names are spelled by the caller, as the file has them.
// All methods throw InputError naming the file and the tensor, what was expected and what was found.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "format/tensor_info.h"

namespace espalier {

enum class WeightMode {
  stored,  // as the file has them
  f32,     // everything widened to float
  q8_0,    // float weights quantised at load, block formats as they are
};

// What q8_0 means for a matrix whose rows are not whole blocks of 32.
enum class OddRows { refuse, keep_as_stored };

// How the rows of a query or key projection lie in the file. llama.cpp's converter interleaves the two halves of each
// head for some architectures (rows 2i and 2i + 1 rotate together); undoing that once at load leaves one kind of
// rotation in the engine.
struct HeadRows {
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  bool interleaved = false;

  std::int64_t rows() const { return heads * head_size; }
};

// The elements of a tensor of i32 or i64.
std::vector<std::int64_t> widened_integers(const TensorInfo& info);

// Device and source must outlive the reader.
class WeightReader {
 public:
  WeightReader(Device& device, const TensorSource& source, WeightMode mode, OddRows odd_rows = OddRows::refuse)
      : device_(device), source_(source), mode_(mode), odd_rows_(odd_rows) {}

  std::unique_ptr<const Weight> matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs);
  // Some rows of a matrix [outputs, inputs], in the order given.
  std::unique_ptr<const Weight> matrix_rows(std::string_view name, std::int64_t outputs, std::int64_t inputs,
                                            std::span<const std::int32_t> rows);
  // Two matrices [outputs, inputs] as one [2 * outputs, inputs].
  std::unique_ptr<const Weight> stacked(std::string_view first, std::string_view second, std::int64_t outputs,
                                        std::int64_t inputs);
  // Queries and keys: rows in the half-split order, whatever the file has.
  std::unique_ptr<const Weight> rotated_matrix(std::string_view name, const HeadRows& rows, std::int64_t inputs);
  Tensor rotated_vector(std::string_view name, const HeadRows& rows);
  Tensor vector(std::string_view name, std::int64_t size);

  // The tensors of the source that nobody has read, in its order.
  std::vector<std::string_view> unread() const;
  // The coarsest type that the values of a matrix go through, on disk or on the device.
  DType precision(std::string_view name) const;
  // How many of the matrices are on the device in floats, a part of one included.
  std::int64_t float_matrices() const { return float_matrices_; }

 private:
  struct Matrix;

  const TensorInfo& find(std::string_view name, const std::vector<std::int64_t>& shape);
  Matrix find_matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs);
  Matrix read_matrix(std::string_view name, std::int64_t outputs, std::int64_t inputs);
  void convert(Matrix& matrix) const;
  std::unique_ptr<const Weight> load(std::span<const Matrix> matrices);
  std::vector<float> read_vector(std::string_view name, std::int64_t size);
  DType loaded_type(const TensorInfo& info, std::int64_t inputs) const;
  Tensor to_device(const std::vector<float>& values);

  Device& device_;
  const TensorSource& source_;
  WeightMode mode_;
  OddRows odd_rows_;
  std::set<std::string, std::less<>> read_;
  std::int64_t float_matrices_ = 0;
};

}  // namespace espalier
