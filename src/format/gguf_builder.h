// Writes GGUF v3 files for tests (library espalier_format_testing). Valid by default:
//
//   GgufBuilder()
//       .set("general.architecture", "llama")
//       .set("llama.block_count", 2u)
//       .set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"})
//       .tensor("output.weight", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
//       .write(folder / "model.gguf");
//
// The calls under "lies" write what they are told, however wrong, for the tests of the reader. Bytes are std::string
// here: they are only ever joined and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.h"

namespace espalier {

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

class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& set(std::string_view key, const T& value) {
    return set_encoded(key, gguf_encode(value));
  }
  GgufBuilder& set_encoded(std::string_view key, const GgufEncoded& value);
  // Writes general.alignment and lays the data out accordingly.
  GgufBuilder& alignment(std::uint32_t alignment);
  // Shape outermost first, as in TensorInfo. `data` must have exactly the bytes the shape needs.
  GgufBuilder& tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape, std::string data);
  std::size_t tensor_count() const { return tensors_.size(); }

  // Lies. raw_tensor's dimensions are innermost first, as in the file; without an offset the data is laid out after
  // the tensors before it.
  struct RawTensor {
    std::string name = "t";
    std::vector<std::uint64_t> dimensions = {1};
    std::uint32_t type = 0;
    std::optional<std::uint64_t> offset = std::nullopt;
    std::string data = {};
  };
  GgufBuilder& raw_tensor(RawTensor tensor);
  struct Header {
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::optional<std::uint64_t> tensors = std::nullopt;  // the counts: true unless given
    std::optional<std::uint64_t> keys = std::nullopt;
  };
  GgufBuilder& header(Header header);

  // The file, and where its parts begin (for tests that cut it).
  std::string bytes() const;
  std::size_t metadata_begin() const;
  std::size_t tensors_begin() const;
  std::size_t data_begin() const;
  void write(const std::filesystem::path& path) const;

 private:
  std::string head() const;  // everything before the data section, without the padding

  Header header_;
  std::uint64_t keys_ = 0;
  std::string metadata_;
  std::uint64_t alignment_ = 32;
  std::vector<RawTensor> tensors_;  // every offset set
  std::string data_;
};

// Writes the shards STEM-00001-of-0000N.gguf with their split.* keys; returns the path of the first.
std::filesystem::path write_split_gguf(const std::filesystem::path& folder, std::string_view stem,
                                       std::vector<GgufBuilder> shards);

// The number GGUF gives to a tensor type. Requires one that GGUF has (not u8).
std::uint32_t gguf_type_number(DType type);

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
