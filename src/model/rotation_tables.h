// Cosines and sines of the rotary angles of every position, as the rope op reads them.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"

namespace espalier {

struct RotationTables {
  Tensor cosine, sine;  // f32 [positions, head_size / 2]
};

// inverse_frequencies: [head_size / 2].
RotationTables make_rotation_tables(Device& device, const std::vector<float>& inverse_frequencies,
                                    std::int64_t positions);

}  // namespace espalier
