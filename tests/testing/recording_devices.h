// Devices that record every step and replay it (device/conformance/recording_device.h), around both CPU devices.
#pragma once

#include <vector>

#include "testing/engine.h"

namespace espalier::testing {

std::vector<NamedDevice> recording_devices();

// Prints how many steps a device made above has replayed, and fails the test if there were none; any other device is
// fine.
void expect_replays(const Device& device);

}  // namespace espalier::testing
