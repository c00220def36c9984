// For devices whose memory is the host's: an address on the device is an address here. Internal linkage, for the reason
// given in float16.h.
#pragma once

#include <cstdint>

#include "device/view.h"

namespace espalier {

// The first element of a row of dimension 0.
static inline const float* floats(ConstView view, std::int64_t row = 0) {
  return reinterpret_cast<const float*>(view.data()) + row * view.row_stride();
}
static inline float* floats(View view, std::int64_t row = 0) {
  return reinterpret_cast<float*>(view.data()) + row * view.row_stride();
}
static inline const double* doubles(ConstView view, std::int64_t row = 0) {
  return reinterpret_cast<const double*>(view.data()) + row * view.row_stride();
}
static inline double* doubles(View view, std::int64_t row = 0) {
  return reinterpret_cast<double*>(view.data()) + row * view.row_stride();
}
static inline const std::int32_t* ints(ConstView view, std::int64_t row = 0) {
  return reinterpret_cast<const std::int32_t*>(view.data()) + row * view.row_stride();
}
static inline std::int32_t* ints(View view, std::int64_t row = 0) {
  return reinterpret_cast<std::int32_t*>(view.data()) + row * view.row_stride();
}

}  // namespace espalier
