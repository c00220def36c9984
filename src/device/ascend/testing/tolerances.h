// How far the results of one operator, computed by two libraries from the same operands, may be apart where both are
// right: nothing for operators that move, compare or convert numbers, and for the others what the length of their sums,
// the argument of an exponential and the types allow. Every bound is derived, as those of device/conformance/bounds.h.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "device/ascend/descriptors.h"

namespace espalier::ascend {

// What an operator was given, each kind in the order of its parameters.
struct Arguments {
  std::vector<std::optional<Layout>> tensors = {};  // nothing: an optional one that was left out
  std::vector<std::vector<Layout>> lists = {};
  std::vector<double> numbers = {};  // of type double
  bool may_round_f32 = false;        // a product may round its operands to eleven digits
};

// The elements of a tensor, in the order of its dimensions.
using ReadElements = std::function<std::vector<double>(const Layout&)>;

// Elements may be apart by relative * the larger magnitude + their own absolute.
struct Tolerance {
  double relative = 0;
  std::vector<double> absolute = {};  // one for each element; one for all of them; none: 0

  double of(std::size_t element, double a, double b) const;
};

// Of this output, which is one of the arguments.
Tolerance tolerance_of(std::string_view op, const Arguments& arguments, const Layout& out, const ReadElements& read);

}  // namespace espalier::ascend
