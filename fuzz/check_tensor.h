// A tensor that a reader has let through lies inside of its file, and has the bytes that its shape needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format/tensor_info.h"
#include "require.h"

inline void check_tensor(const espalier::TensorInfo& tensor, std::span<const std::byte> file) {
  require(tensor.bytes.data() >= file.data());
  require(tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
  const bool scalar = tensor.shape.empty();
  std::int64_t size = espalier::row_bytes(tensor.type, scalar ? 1 : tensor.shape.back());
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) size *= tensor.shape[i];
  require(static_cast<std::size_t>(size) == tensor.bytes.size());
}
