// Creating, judging and destroying descriptors and executors (F12 to F14, F17, F19).
#include <algorithm>
#include <cstring>
#include <functional>

#include "acl_runtime.h"
#include "descriptors.h"
#include "fake.h"
#include "numbers.h"

namespace ascend_fake {
namespace {

// F12 and F13: what aclCreateTensor does not look at, and a kernel then computes with.
class TensorCheck {
 public:
  TensorCheck(Fake& fake, const Tensor& tensor) : fake_(fake), tensor_(tensor), operand_(tensor.operand) {}

  bool sound() {
    check_shape();
    if (sound_) check_place();
    if (sound_) check_layout();
    return sound_;
  }

 private:
  void refuse(bool broken, const std::string& text) {
    if (!broken || !sound_) return;
    sound_ = false;
    fake_.ledger.violation(12, text);
  }

  void check_shape() {
    const auto positive = [](const Shape& shape) {
      return std::all_of(shape.begin(), shape.end(), [](int64_t dim) { return dim > 0; });
    };
    refuse(operand_.dims.empty() || operand_.dims.size() > 8, "rank is not 1 to 8");
    refuse(tensor_.storage.empty() || tensor_.storage.size() > 8, "rank of the storage is not 1 to 8");
    refuse(!positive(operand_.dims) || !positive(tensor_.storage), "a dimension is not positive");
    refuse(std::any_of(operand_.strides.begin(), operand_.strides.end(), [](int64_t s) { return s < 0; }),
           "a stride is negative");
    refuse(operand_.offset < 0, "the offset is negative");
    refuse(bits_of(operand_.type) == 0, "unknown type");
    refuse(operand_.format != ACL_FORMAT_ND && operand_.format != ACL_FORMAT_FRACTAL_NZ, "unknown format");
  }

  void check_place() {
    const int64_t room = product(tensor_.storage);
    refuse(operand_.format == ACL_FORMAT_ND && operand_.last_element() >= room,
           "the view " + text_of(operand_.dims) + " reaches element " + std::to_string(operand_.last_element()) +
               " of a storage of " + std::to_string(room));
    refuse(operand_.address == 0, "the address is null");
    refuse(operand_.address % 32 != 0, "the address of the storage is not a multiple of 32");
    const Range bytes = operand_.range(0, room);
    refuse(fake_.memory.containing(bytes) == nullptr,
           "the storage of " + std::to_string(bytes.end - bytes.begin) + " bytes is not inside one live allocation");
  }

  void check_layout() {
    const NzMatrix* matrix = nullptr;
    for (const Range& range : operand_.bytes()) {
      if (matrix == nullptr) matrix = fake_.memory.converted(range);
    }
    const bool nz = operand_.format == ACL_FORMAT_FRACTAL_NZ;
    if (nz == (matrix != nullptr)) return;
    fake_.ledger.violation(
        13, nz ? "NZ described over memory that was not converted" : "a converted weight described as ND");
    sound_ = false;
  }

  Fake& fake_;
  const Tensor& tensor_;
  const Operand& operand_;
  bool sound_ = true;
};

Shape copied(const int64_t* values, uint64_t count) {
  return values == nullptr ? Shape{} : Shape(values, values + count);
}

Shape dense_strides(const Shape& dims) {
  Shape strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

template <typename T>
double scalar_value(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, BF16>) {
    return widened(value);
  } else {
    return static_cast<double>(value);
  }
}

double scalar_value(const void* bytes, aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return scalar_value<float>(bytes);
    case ACL_DOUBLE: return scalar_value<double>(bytes);
    case ACL_FLOAT16: return scalar_value<F16>(bytes);
    case ACL_BF16: return scalar_value<BF16>(bytes);
    case ACL_INT64: return scalar_value<int64_t>(bytes);
    case ACL_INT32: return scalar_value<int32_t>(bytes);
    case ACL_INT8: return scalar_value<int8_t>(bytes);
    case ACL_BOOL:
    case ACL_UINT8: return scalar_value<uint8_t>(bytes);
    default: throw Refusal{kInvalid, "a scalar of this type is not known"};
  }
}

template <typename T>
void ended(Registry<T>& registry, const void* handle) {
  if (T* object = registry.find(handle)) --object->waiting;
}

// Makes a descriptor, which needs no device: null where the call is refused.
template <typename Body>
void* created(const char* name, Body&& body) {
  void* handle = nullptr;
  answer({.name = name, .needs = Needs::kInit, .of_operators = true, .of_host = true}, [&](Fake& f) {
    handle = body(f);
    return 0;
  });
  return handle;
}

// F14: destroys one of these, unless it is absent.
template <typename T>
aclnnStatus destroyed(const char* name, Registry<T> Fake::*registry, const void* handle,
                      const std::function<void(Fake&, T&)>& before = {}) {
  const Symbol symbol{.name = name, .needs = Needs::kInit, .releases = true, .of_operators = true, .of_host = true};
  return answer(symbol, [&](Fake& f) {
    T* object = (f.*registry).find(handle);
    if (object == nullptr) {
      f.ledger.violation(14, (f.*registry).absence(handle));
      return kInvalid;
    }
    if constexpr (!std::is_same_v<T, Executor>) {
      if (object->waiting > 0) f.ledger.violation(14, "destroyed between the phases of an op");
    }
    if (before) before(f, *object);
    (f.*registry).erase(handle);
    return 0;
  });
}

void set_address(Fake& f, Tensor& tensor, void* address) {
  if (tensor.waiting > 0) f.ledger.violation(19, "the address of an operand changed between the phases");
  tensor.operand.address = reinterpret_cast<uint64_t>(address);
  tensor.sound = TensorCheck(f, tensor).sound();
}

Tensor& tensor_of(Fake& f, const void* handle) {
  Tensor* tensor = f.tensors.find(handle);
  if (tensor != nullptr) return *tensor;
  f.ledger.violation(14, f.tensors.absence(handle));
  throw Refusal{kInvalid, "no such tensor"};
}

}  // namespace

void release_descriptors(Fake& f, const Executor& executor) {
  for (const void* handle : executor.tensors) ended(f.tensors, handle);
  for (const void* handle : executor.others) {
    ended(f.lists, handle);
    ended(f.scalars, handle);
    ended(f.arrays, handle);
  }
}

aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t* stride,
                           int64_t offset, aclFormat format, const int64_t* storageDims, uint64_t storageDimsNum,
                           void* tensorData) {
  return static_cast<aclTensor*>(created("aclCreateTensor", [&](Fake& f) {
    Tensor tensor{.origin = f.ledger.current()};
    const Shape dims = copied(viewDims, viewDimsNum);
    tensor.operand = {.address = reinterpret_cast<uint64_t>(tensorData),
                      .type = dataType,
                      .format = format,
                      .dims = dims,
                      .strides = stride == nullptr ? dense_strides(dims) : copied(stride, viewDimsNum),
                      .offset = offset};
    tensor.storage = copied(storageDims, storageDimsNum);
    tensor.sound = TensorCheck(f, tensor).sound();
    return f.tensors.add(std::move(tensor));
  }));
}

aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  return static_cast<aclTensorList*>(created("aclCreateTensorList", [&](Fake& f) {
    if (size == 0 || value == nullptr) f.ledger.violation(14, "a list of nothing");
    TensorList list{.origin = f.ledger.current()};
    for (uint64_t i = 0; value != nullptr && i < size; ++i) {
      Tensor& tensor = tensor_of(f, value[i]);
      if (tensor.of_list) f.ledger.violation(14, "a tensor in two lists, or twice in one");
      tensor.of_list = true;
      list.tensors.push_back(value[i]);
    }
    return f.lists.add(std::move(list));
  }));
}

aclScalar* aclCreateScalar(void* value, aclDataType dataType) {
  return static_cast<aclScalar*>(created("aclCreateScalar", [&](Fake& f) {
    if (value == nullptr) throw Refusal{kNull, "a scalar of nothing"};
    return f.scalars.add({.origin = f.ledger.current(), .value = scalar_value(value, dataType), .type = dataType});
  }));
}

aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  return static_cast<aclIntArray*>(created("aclCreateIntArray", [&](Fake& f) {
    if (size == 0 || value == nullptr) f.ledger.violation(14, "an array of size 0");
    return f.arrays.add({.origin = f.ledger.current(), .values = copied(value, size)});
  }));
}

aclnnStatus aclDestroyTensor(const aclTensor* tensor) {
  return destroyed<Tensor>("aclDestroyTensor", &Fake::tensors, tensor, [](Fake& f, Tensor& object) {
    if (object.of_list) f.ledger.violation(14, "a tensor of a list destroyed alone");
  });
}

aclnnStatus aclDestroyTensorList(const aclTensorList* array) {
  return destroyed<TensorList>("aclDestroyTensorList", &Fake::lists, array, [](Fake& f, TensorList& object) {
    for (const void* tensor : object.tensors) f.tensors.erase(tensor);
  });
}

aclnnStatus aclDestroyScalar(const aclScalar* scalar) {
  return destroyed<Scalar>("aclDestroyScalar", &Fake::scalars, scalar);
}

aclnnStatus aclDestroyIntArray(const aclIntArray* array) {
  return destroyed<IntArray>("aclDestroyIntArray", &Fake::arrays, array);
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  return destroyed<Executor>("aclDestroyAclOpExecutor", &Fake::executors, executor, [](Fake& f, Executor& object) {
    if (object.launches == 0) release_descriptors(f, object);
    if (!object.repeatable) f.ledger.violation(17, "destroys an executor that is not repeatable and was never used");
  });
}

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor* executor) {
  const Symbol symbol{.name = "aclSetAclOpExecutorRepeatable", .needs = Needs::kInit, .of_operators = true};
  return answer(symbol, [&](Fake& f) {
    Executor* object = f.executors.find(executor);
    if (object == nullptr) {
      f.ledger.violation(17, f.executors.absence(executor));
      return kInvalid;
    }
    if (object->origin.call + 1 != f.ledger.calls())
      f.ledger.violation(17, "repeatable set late, not directly after phase 1");
    if (object->copies_inside) f.ledger.violation(17, "repeatable for an op that copies inside: " + object->op);
    object->repeatable = true;
    return 0;
  });
}

aclnnStatus aclSetTensorAddr(aclOpExecutor* executor, const size_t index, aclTensor* tensor, void* addr) {
  return answer({.name = "aclSetTensorAddr", .needs = Needs::kInit, .of_operators = true}, [&](Fake& f) {
    Executor* object = f.executors.find(executor);
    if (object == nullptr || !object->repeatable) {
      f.ledger.violation(17, "an address is set for an executor that is not repeatable");
      return kInvalid;
    }
    if (index >= object->tensors.size()) return kInvalid;
    set_address(f, tensor_of(f, tensor), addr);
    f.ledger.violation(19, "the operands of an executor are those of its phase 1");
    return 0;
  });
}

aclnnStatus aclSetRawTensorAddr(aclTensor* tensor, void* addr) {
  return answer({.name = "aclSetRawTensorAddr", .needs = Needs::kInit, .of_operators = true}, [&](Fake& f) {
    set_address(f, tensor_of(f, tensor), addr);
    return 0;
  });
}

}  // namespace ascend_fake
