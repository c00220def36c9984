#include "model/rotation_tables.h"

#include "base/math.h"

namespace espalier {

// The angle is rounded to float before sine and cosine, as the models were trained, and these before the amplitude.
RotationTables make_rotation_tables(Device& device, const Rope& rope, std::int64_t positions) {
  const auto half = rope.inverse_frequencies.size();
  std::vector<float> cosine(static_cast<std::size_t>(positions) * half), sine(cosine.size());
  for (std::size_t p = 0; p < static_cast<std::size_t>(positions); ++p)
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * rope.inverse_frequencies[i];
      cosine[p * half + i] = static_cast<float>(cos_f64(angle)) * rope.amplitude;
      sine[p * half + i] = static_cast<float>(sin_f64(angle)) * rope.amplitude;
    }
  RotationTables tables{device.tensor(DType::f32, {positions, static_cast<std::int64_t>(half)}),
                        device.tensor(DType::f32, {positions, static_cast<std::int64_t>(half)})};
  upload<float>(device, cosine, tables.cosine);
  upload<float>(device, sine, tables.sine);
  return tables;
}

std::shared_ptr<const RotationTables> Rotation::tables(std::int64_t positions) {
  if (!longest_ || longest_->positions() < positions)
    longest_ = std::make_shared<const RotationTables>(make_rotation_tables(*device_, rope_, positions));
  return longest_;
}

}  // namespace espalier
