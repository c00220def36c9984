// Memory that runs out is told with what it was for: the device knows how much was wanted and how much there is, its
// caller for what.
#pragma once

#include <string>

#include "base/error.h"

namespace espalier {

// Runs `work`, which takes memory of a device. Its DeviceError is thrown on with `what` in front of its line.
template <typename Work>
auto taking_memory_for(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const DeviceError& error) {
    device_error("{}: {}", what, error.what());
  }
}

}  // namespace espalier
