// The rotary angles that a configuration means, scaling included.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/config_fields.h"

namespace espalier {

struct Rope {
  std::vector<float> inverse_frequencies = {};  // [head_size / 2]
  float amplitude = 1;                          // multiplies cosines and sines (YaRN)
};

// What a reader makes of a configuration beside its own words.
struct RopeReading {
  std::optional<double> theta = {};  // takes the place of the file's
  // Draft heads: yarn and dynamic too. Dynamic scaling has the frequencies of texts within `max_position_embeddings`
  // whatever the length, so that a place depends on its tokens alone; of teachers it is refused, as their text would be
  // another one.
  bool of_head = false;
};

// A file without a base means 10000. Throw InputError naming file, field, expected and got.
Rope read_rope(const JsonFields& fields, std::int64_t head_size, const RopeReading& reading);
Rope read_rope(const GgufFields& fields, std::int64_t head_size, const RopeReading& reading);

}  // namespace espalier
