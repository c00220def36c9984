// The number formats of files, weights and tensors. A block format stores `block_elements` consecutive elements of a
// row in `block_bytes` bytes; plain formats are blocks of one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier {

enum class DType : std::uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, i32, i64, u8, f64 };

inline constexpr DType kLinearTypes[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0,
                                         DType::q5_1, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k};

struct DTypeTraits {
  std::string_view name;
  std::int64_t block_elements;
  std::int64_t block_bytes;
};

const DTypeTraits& traits(DType type);
inline std::string_view name(DType type) {
  return traits(type).name;
}
// Numbers that models are made of: f64 holds what a host computes in double, and is none of them.
inline bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}
inline bool is_block_quantised(DType type) {
  return traits(type).block_elements > 1;
}

// Bytes of one row of `elements` elements. Requires elements to be a multiple of block_elements.
std::int64_t row_bytes(DType type, std::int64_t elements);

// "f16" -> DType::f16; upper case is accepted ("Q4_K").
std::optional<DType> parse_dtype(std::string_view text);

}  // namespace espalier
