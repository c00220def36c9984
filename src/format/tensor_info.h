// What a model file says about one tensor, after every number has been checked, and the interface through which
// model/ asks for tensors without knowing the container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace espalier {

struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  std::vector<std::int64_t> shape;   // outermost first: a linear weight is [outputs, inputs]
  std::span<const std::byte> bytes;  // dense row-major, inside a mapped file; exactly the bytes the shape needs
};

// Tensors by name. Spans inside the infos live as long as the source. Immutable after construction.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // nullptr when there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  virtual std::span<const TensorInfo> tensors() const = 0;
  // For messages: the file or folder this came from.
  virtual std::string_view description() const = 0;
  // The caller has taken what it needs: the tensor's pages need not stay in memory. Its bytes remain readable.
  virtual void release(const TensorInfo&) const {}
};

}  // namespace espalier
