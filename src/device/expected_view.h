// What public methods of the contracts check of an operand before a kernel sees it.
#pragma once

#include <fmt/ranges.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "device/view.h"

namespace espalier {

// In a shape: at least 1.
inline constexpr std::int64_t kAny = -1;

// Throws unless the view has this type and shape; kAny leaves a dimension open.
inline void expect(std::string_view op, std::string_view argument, const ConstView& view, DType type,
                   std::initializer_list<std::int64_t> shape, bool may_be_strided = false) {
  bool fits = view.type() == type && view.rank() == static_cast<int>(shape.size());
  int i = 0;
  for (std::int64_t extent : shape) {
    fits = fits && (extent == kAny ? view.dim(i) >= 1 : view.dim(i) == extent);
    ++i;
  }
  check(fits, "{}: {} is {}, expected {} [{}] (-1: at least 1)", op, argument, view, name(type),
        fmt::join(shape.begin(), shape.end(), ", "));
  check(may_be_strided || view.dense(), "{}: {} is {}, expected a dense view", op, argument, view);
}

}  // namespace espalier
