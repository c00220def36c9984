// The devices that can be named here, as JSON objects for people and programs.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "device/ascend/library.h"

namespace espalier {

// The processor, and what of it the kernels can use.
nlohmann::ordered_json describe_cpu();

// Every device that --device can name here; where one cannot be used, why. cann: where the Ascend device finds it.
nlohmann::ordered_json describe_devices(const ascend::LibraryOptions& cann);

}  // namespace espalier
