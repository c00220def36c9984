// From a type known when the program runs to kernels compiled for it.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "base/dtype.h"
#include "device/cuda/kernels.h"
#include "device/cuda/scalar_math.h"

namespace espalier::cuda {

template <DType type>
using FormatConstant = std::integral_constant<DType, type>;

// Calls body with the constant of a block format.
template <typename Body>
auto with_format(DType type, const Body& body) {
  switch (type) {
    case DType::q4_0: return body(FormatConstant<DType::q4_0>{});
    case DType::q4_1: return body(FormatConstant<DType::q4_1>{});
    case DType::q5_0: return body(FormatConstant<DType::q5_0>{});
    case DType::q5_1: return body(FormatConstant<DType::q5_1>{});
    case DType::q8_0: return body(FormatConstant<DType::q8_0>{});
    case DType::q4_k: return body(FormatConstant<DType::q4_k>{});
    case DType::q5_k: return body(FormatConstant<DType::q5_k>{});
    case DType::q6_k: return body(FormatConstant<DType::q6_k>{});
    default: throw std::logic_error("cuda: not a block format");
  }
}

// Calls body with the element type of plain numbers.
template <typename Body>
auto with_element(DType type, const Body& body) {
  switch (type) {
    case DType::f32: return body(F32Element{});
    case DType::f16: return body(F16Element{});
    case DType::bf16: return body(Bf16Element{});
    default: throw std::logic_error("cuda: not a type of plain numbers");
  }
}

// Calls body with the element type of numbers of two bytes.
template <typename Body>
auto with_16_bits(DType type, const Body& body) {
  return type == DType::bf16 ? body(Bf16Element{}) : body(F16Element{});
}

// Calls body with the constants of a queue: terms of x, and small blocks.
template <typename Body>
void with_terms(const Queue& queue, const Body& body) {
  const auto with_blocks = [&](auto terms) {
    queue.small_blocks ? body(terms, std::true_type{}) : body(terms, std::false_type{});
  };
  queue.terms == 1 ? with_blocks(std::integral_constant<int, 1>{}) : with_blocks(std::integral_constant<int, 2>{});
}

}  // namespace espalier::cuda
