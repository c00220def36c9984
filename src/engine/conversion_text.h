// What becomes of a model's tensors when it is written anew, as lines for people. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "engine/model_conversion.h"

namespace espalier {

// A line for each tensor.
std::string conversion_lines(const std::vector<TensorConversion>& conversions);

// Tensors and bytes for each change of type and for those that are kept, and in all; behind it a note where precision
// was lost before.
std::string conversion_table(const std::vector<TensorConversion>& conversions);

}  // namespace espalier
