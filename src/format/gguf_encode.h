// How the parts of a GGUF v3 file are spelled: metadata values, tensor entries, and everything before the data. The one
// place that knows it for writing; gguf_writer.h streams models with it, gguf_builder.h makes the files of tests. The
// layout is described in gguf_file.h. Pure functions. Bytes are std::string here: they are only ever joined and
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.h"

namespace espalier {

inline constexpr std::uint64_t kDefaultGgufAlignment = 32;

// The memory of some numbers, as tensor data.
template <typename T>
std::string bytes_of(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  return bytes_of(std::span<const T>(values.begin(), values.size()));
}
template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return bytes_of(std::span<const T>(values));
}

// A GGUF string: length and bytes.
std::string gguf_text(std::string_view text);

// The numbers GGUF gives to the types of metadata values.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

// An encoded metadata value; also the element of nested arrays.
struct GgufEncoded {
  GgufType type;
  std::string bytes;
};

// The GGUF type is that of the C++ type: 2u is a u32, 2 an i32, 0.5f an f32, 0.5 an f64.
template <typename T>
GgufEncoded gguf_encode(const T& value);
// All elements must have one type.
GgufEncoded gguf_array(GgufType element_type, const std::vector<GgufEncoded>& elements);

// One entry of the metadata section: key, type and value.
std::string gguf_entry(std::string_view key, const GgufEncoded& value);

// The number GGUF gives to a tensor type. Requires one that GGUF has (not u8).
std::uint32_t gguf_type_number(DType type);

struct GgufTensorEntry {
  std::string name = "t";
  std::vector<std::uint64_t> dimensions = {1};  // innermost first, as in the file
  std::uint32_t type = 0;
  std::uint64_t offset = 0;  // into the data section
};

struct GgufHead {
  std::string_view magic = "GGUF";
  std::uint32_t version = 3;
  std::uint64_t tensor_count = 0;
  std::uint64_t key_count = 0;
  std::string_view metadata = {};  // encoded entries, one after another
};
// Everything before the data section, without the padding.
std::string gguf_head(const GgufHead& head, std::span<const GgufTensorEntry> tensors);

// The next multiple of the alignment.
constexpr std::uint64_t gguf_aligned(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

namespace detail {

template <typename T>
constexpr GgufType number_type() {
  if constexpr (std::is_same_v<T, bool>)
    return GgufType::boolean;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? GgufType::f32 : GgufType::f64;
  else if constexpr (sizeof(T) == 1)
    return std::is_signed_v<T> ? GgufType::i8 : GgufType::u8;
  else if constexpr (sizeof(T) == 2)
    return std::is_signed_v<T> ? GgufType::i16 : GgufType::u16;
  else if constexpr (sizeof(T) == 4)
    return std::is_signed_v<T> ? GgufType::i32 : GgufType::u32;
  else
    return std::is_signed_v<T> ? GgufType::i64 : GgufType::u64;
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

}  // namespace detail

template <typename T>
GgufEncoded gguf_encode(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return {detail::number_type<T>(), bytes_of<T>({value})};
  } else if constexpr (detail::IsVector<T>::value) {
    std::vector<GgufEncoded> elements;
    for (const auto& element : value) elements.push_back(gguf_encode<typename T::value_type>(element));
    return gguf_array(gguf_encode(typename T::value_type{}).type, elements);
  } else {
    return {GgufType::text, gguf_text(value)};
  }
}

}  // namespace espalier
