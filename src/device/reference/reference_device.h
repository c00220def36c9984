// The contract of device.h as plain loops: the executable specification and the judge of every other device. It is
// read more than run; nobody makes it faster. Threads share out outputs, heads or rows.
#pragma once

#include <memory>

#include "device/device.h"

namespace espalier {

std::unique_ptr<Device> make_reference_device(int threads = 1);

}  // namespace espalier
