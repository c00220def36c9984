#include "device/ascend/descriptors.h"

#include <functional>
#include <numeric>

#include "base/error.h"

namespace espalier::ascend {
namespace {

constexpr std::uintptr_t kStorageAlignment = 32;

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

template <typename Handle>
Described<Handle> owned(Handle* handle, const Symbol<AclCode(const Handle*)>& destroy, std::string_view call) {
  if (handle == nullptr) device_error("Ascend: {}: no descriptor", call);
  return Described<Handle>(handle, Destroy<Handle>{&destroy});
}

}  // namespace

AclType acl_type(DType type) {
  switch (type) {
    case DType::f32: return AclType::f32;
    case DType::f16: return AclType::f16;
    case DType::bf16: return AclType::bf16;
    case DType::i32: return AclType::i32;
    case DType::i64: return AclType::i64;
    case DType::u8: return AclType::u8;
    default: break;
  }
  check(false, "no operator takes {}", name(type));
  return AclType::u8;
}

std::int64_t element_bytes(AclType type) {
  switch (type) {
    case AclType::i64: return 8;
    case AclType::f32:
    case AclType::i32: return 4;
    case AclType::f16:
    case AclType::bf16: return 2;
    case AclType::u8:
    case AclType::boolean: return 1;
  }
  return 1;
}

Layout::Layout(const ConstView& view) : data(view.data()), type(acl_type(view.type())) {
  for (int i = 0; i < view.rank(); ++i) sizes.push_back(view.dim(i));
  if (view.dense()) return;
  strides = dense_strides(sizes);
  strides[0] = view.row_stride();
}

std::int64_t Layout::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

Layout Layout::reshaped(std::initializer_list<std::int64_t> other) const {
  const Layout result(data, type, other);
  check(strides.empty() && result.elements() == elements(), "a tensor of {} elements as one of {}", elements(),
        result.elements());
  return result;
}

// The storage begins on 32 bytes, where the operators want it; where the tensor does not, it has an offset there. It is
// told as one dimension that reaches to the last element.
TensorDescriptor describe(const Api& api, const Layout& layout) {
  const auto address = reinterpret_cast<std::uintptr_t>(layout.data);
  const std::uintptr_t beyond = address % kStorageAlignment;
  const std::int64_t offset = static_cast<std::int64_t>(beyond) / element_bytes(layout.type);
  const std::vector<std::int64_t> strides = layout.strides.empty() ? dense_strides(layout.sizes) : layout.strides;
  std::int64_t extent = offset + 1;
  for (std::size_t i = 0; i < strides.size(); ++i) extent += (layout.sizes[i] - 1) * strides[i];
  AclTensor* const tensor =
      api.aclCreateTensor(layout.sizes.data(), layout.sizes.size(), layout.type, strides.data(), offset, AclFormat::nd,
                          &extent, 1, reinterpret_cast<void*>(address - beyond));
  return owned(tensor, api.aclDestroyTensor, api.aclCreateTensor.name);
}

// A list owns its tensors and destroys them with itself.
TensorListDescriptor describe_list(const Api& api, std::span<const Layout> layouts) {
  std::vector<TensorDescriptor> tensors;
  std::vector<const AclTensor*> handles;
  for (const Layout& layout : layouts) handles.push_back(tensors.emplace_back(describe(api, layout)).get());
  TensorListDescriptor list = owned(api.aclCreateTensorList(handles.data(), handles.size()), api.aclDestroyTensorList,
                                    api.aclCreateTensorList.name);
  for (TensorDescriptor& tensor : tensors) tensor.release();
  return list;
}

ScalarDescriptor describe_scalar(const Api& api, float value) {
  return owned(api.aclCreateScalar(&value, AclType::f32), api.aclDestroyScalar, api.aclCreateScalar.name);
}

IntArrayDescriptor describe_numbers(const Api& api, std::initializer_list<std::int64_t> values) {
  return owned(api.aclCreateIntArray(values.begin(), values.size()), api.aclDestroyIntArray,
               api.aclCreateIntArray.name);
}

}  // namespace espalier::ascend
