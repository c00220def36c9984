#include "values.h"

#include <cstring>
#include <limits>
#include <type_traits>

#include "acl_types.h"
#include "ledger.h"
#include "numbers.h"

namespace ascend_fake {
namespace {

// Calls body with a value of the element's type, for every type of whole bytes.
template <typename Body>
void with_type(aclDataType type, Body&& body) {
  switch (type) {
    case ACL_FLOAT: return body(float{});
    case ACL_FLOAT16: return body(F16{});
    case ACL_BF16: return body(BF16{});
    case ACL_DOUBLE: return body(double{});
    case ACL_INT8: return body(int8_t{});
    case ACL_INT16: return body(int16_t{});
    case ACL_INT32: return body(int32_t{});
    case ACL_INT64: return body(int64_t{});
    case ACL_UINT8:
    case ACL_BOOL: return body(uint8_t{});
    case ACL_UINT16: return body(uint16_t{});
    case ACL_UINT32: return body(uint32_t{});
    case ACL_UINT64: return body(uint64_t{});
    default: throw Fault{kCoreFault, "elements of this type are not read one by one"};
  }
}

template <typename T>
constexpr bool kIsHalf = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

template <typename T>
T element(const uint8_t* storage, int64_t index) {
  T value;
  std::memcpy(&value, storage + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
float as_float(T value) {
  if constexpr (kIsHalf<T>) {
    return widened(value);
  } else {
    return static_cast<float>(value);
  }
}

// Saturated where the type is too small; NaN, which no document defines, becomes 0.
template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, F16>) {
    return to_f16(value);
  } else if constexpr (std::is_same_v<T, BF16>) {
    return to_bf16(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    if (std::isnan(value)) return 0;
    const double least = static_cast<double>(std::numeric_limits<T>::min());
    const double most = static_cast<double>(std::numeric_limits<T>::max());
    if (value <= least) return std::numeric_limits<T>::min();
    if (value >= most) return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  }
}

template <typename T>
int64_t as_integer(T value) {
  if constexpr (kIsHalf<T>) {
    return from_float<int64_t>(widened(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return from_float<int64_t>(static_cast<float>(value));
  } else {
    return static_cast<int64_t>(value);
  }
}

template <typename T>
T from_integer(int64_t value) {
  if constexpr (kIsHalf<T>) {
    return from_float<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// F16 in eights, which a vocabulary's worth of weights needs.
void widen_row(const uint8_t* source, int64_t count, float* target) {
  int64_t i = 0;
#if defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + 2 * i));
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < count; ++i) target[i] = widened(element<F16>(source, i));
}

template <typename T>
void read_row(const uint8_t* storage, int64_t first, int64_t step, int64_t count, float* target) {
  if constexpr (std::is_same_v<T, F16>) {
    if (step == 1) return widen_row(storage + 2 * first, count, target);
  }
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) target[i] = as_float(element<T>(storage, first + i));
  } else {
    for (int64_t i = 0; i < count; ++i) target[i] = as_float(element<T>(storage, first + i * step));
  }
}

// Two's complement, low nibble first.
std::vector<float> read_int4(const Operand& operand, const uint8_t* storage) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(operand.elements()));
  for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = first + i * step;
      const int nibble = storage[index / 2] >> (index % 2 * 4) & 15;
      values.push_back(static_cast<float>(nibble > 7 ? nibble - 16 : nibble));
    }
  });
  return values;
}

}  // namespace

std::vector<float> read_floats(const Operand& operand, const uint8_t* storage) {
  if (operand.type == ACL_INT4) return read_int4(operand, storage);
  std::vector<float> values(static_cast<size_t>(operand.elements()));
  float* target = values.data();
  with_type(operand.type, [&](auto tag) {
    for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
      read_row<decltype(tag)>(storage, first, step, count, target);
      target += count;
    });
  });
  return values;
}

std::vector<int64_t> read_integers(const Operand& operand, const uint8_t* storage) {
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(operand.elements()));
  with_type(operand.type, [&](auto tag) {
    for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        values.push_back(as_integer(element<decltype(tag)>(storage, first + i * step)));
    });
  });
  return values;
}

std::vector<uint8_t> read_raw(const Operand& operand, const uint8_t* storage) {
  const int64_t bytes = operand.element_bytes();
  std::vector<uint8_t> values(static_cast<size_t>(operand.elements() * bytes));
  uint8_t* target = values.data();
  for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
    if (step == 1) {
      std::memcpy(target, storage + first * bytes, static_cast<size_t>(count * bytes));
    } else {
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(target + i * bytes, storage + (first + i * step) * bytes, static_cast<size_t>(bytes));
      }
    }
    target += count * bytes;
  });
  return values;
}

std::vector<float> read_nz(const Operand& operand, const NzMatrix& matrix, const uint8_t* storage) {
  const bool turned = operand.strides[0] == 1 && operand.dims[1] != 1;
  std::vector<float> values(static_cast<size_t>(operand.elements()));
  with_type(operand.type, [&](auto tag) {
    for (int64_t i = 0; i < operand.dims[0]; ++i) {
      for (int64_t j = 0; j < operand.dims[1]; ++j) {
        const int64_t place = turned ? matrix.place(j, i) : matrix.place(i, j);
        values[static_cast<size_t>(i * operand.dims[1] + j)] = as_float(element<decltype(tag)>(storage, place));
      }
    }
  });
  return values;
}

void write_floats(const Operand& operand, const std::vector<float>& values, uint8_t* storage) {
  const float* source = values.data();
  with_type(operand.type, [&](auto tag) {
    using T = decltype(tag);
    for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const T value = from_float<T>(source[i]);
        std::memcpy(storage + (first + i * step) * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
      }
      source += count;
    });
  });
}

void write_integers(const Operand& operand, const std::vector<int64_t>& values, uint8_t* storage) {
  const int64_t* source = values.data();
  with_type(operand.type, [&](auto tag) {
    using T = decltype(tag);
    for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        const T value = from_integer<T>(source[i]);
        std::memcpy(storage + (first + i * step) * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
      }
      source += count;
    });
  });
}

void write_raw(const Operand& operand, const std::vector<uint8_t>& bytes, uint8_t* storage) {
  const int64_t size = operand.element_bytes();
  const uint8_t* source = bytes.data();
  for_each_row(operand, [&](int64_t first, int64_t step, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(storage + (first + i * step) * size, source + i * size, static_cast<size_t>(size));
    }
    source += count * size;
  });
}

}  // namespace ascend_fake
