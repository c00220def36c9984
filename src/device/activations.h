// What a device with matrix instructions takes the inputs of linears of float weights as (--activations): sums of two
// numbers of two bytes, nearly as exact as floats, or one such number, which is faster for many rows.
#pragma once

#include <optional>
#include <string_view>

namespace espalier {

enum class Activations { two_terms, bf16 };

std::string_view name(Activations activations);  // "two-terms", "bf16"
// Nothing: none of these.
std::optional<Activations> parse_activations(std::string_view word);

}  // namespace espalier
