// A GGUF model written anew with its matrices in another type: what becomes of each tensor, the plan of the new file,
// and its bytes. Norms, vectors and tables of integers stay as they are. Functions without state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace espalier {

// What becomes of one tensor.
struct TensorConversion {
  const TensorInfo* from = nullptr;
  DType to = DType::f32;
  bool odd_rows = false;  // f16, because its rows are no whole blocks of the wanted type

  bool kept() const { return to == from->type; }
  std::int64_t columns() const { return from->shape.back(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(from->bytes.size()) / row_bytes(from->type, columns()); }
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(rows() * row_bytes(to, columns())); }
};

// In the order of the source, which must outlive them.
std::vector<TensorConversion> plan_conversions(const Gguf& source, DType wanted);

// The new file; a set of split files becomes one. in: the file that the source was read from.
GgufPlan plan_converted_file(const std::filesystem::path& in, const Gguf& source,
                             const std::vector<TensorConversion>& conversions, DType wanted);

struct ConversionEvents {
  std::function<bool()> cancelled = {};
  std::function<void(double)> progress = {};  // share of the tensors
};

// Writes all tensors and finishes the file; false, and nothing finished, when it was cancelled. Throws InputError where
// a weight is none that the wanted type can store.
bool write_converted(const Gguf& source, const std::vector<TensorConversion>& conversions, ThreadPool& pool,
                     const ConversionEvents& events, GgufWriter& writer);

// Whether `out`, which exists, is a file that a model is read from: `in`, or a shard of the set that it begins.
bool is_part_of(const std::filesystem::path& out, const std::filesystem::path& in, std::int64_t shards);

}  // namespace espalier
