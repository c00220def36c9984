// What operators are told about their operands: tensors, lists, numbers. Each is destroyed with its object, which may
// happen as soon as the operator was launched, before it has run.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "device/ascend/acl.h"
#include "device/view.h"

namespace espalier::ascend {

AclType acl_type(DType type);
std::int64_t element_bytes(AclType type);

// A tensor somewhere in the NPU's memory: an address, a type, sizes and, where it is not dense, strides in elements.
struct Layout {
  const std::byte* data = nullptr;
  AclType type = AclType::f32;
  std::vector<std::int64_t> sizes = {};
  std::vector<std::int64_t> strides = {};  // empty: dense

  Layout() = default;
  Layout(const std::byte* data, AclType type, std::initializer_list<std::int64_t> sizes,
         std::initializer_list<std::int64_t> strides = {})
      : data(data), type(type), sizes(sizes), strides(strides) {}
  Layout(const ConstView& view);  // NOLINT: every view is a layout
  Layout(const View& view) : Layout(ConstView(view)) {}

  std::int64_t elements() const;
  // The same elements, which are dense, under other sizes.
  Layout reshaped(std::initializer_list<std::int64_t> other) const;
};

template <typename Handle>
struct Destroy {
  const Symbol<AclCode(const Handle*)>* symbol = nullptr;
  void operator()(Handle* handle) const { (*symbol)(handle); }
};
template <typename Handle>
using Described = std::unique_ptr<Handle, Destroy<Handle>>;

using TensorDescriptor = Described<AclTensor>;
using TensorListDescriptor = Described<AclTensorList>;
using ScalarDescriptor = Described<AclScalar>;
using IntArrayDescriptor = Described<AclIntArray>;

// All throw DeviceError where there is no memory for a descriptor.
TensorDescriptor describe(const Api& api, const Layout& layout);
TensorListDescriptor describe_list(const Api& api, std::span<const Layout> layouts);
ScalarDescriptor describe_scalar(const Api& api, float value);
IntArrayDescriptor describe_numbers(const Api& api, std::initializer_list<std::int64_t> values);

}  // namespace espalier::ascend
