// What a case of any program here is made of: random inputs, the same in every run, a linear over them, and the
// comparison of its answer with the reference's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/float16.h"
#include "device/device.h"

namespace espalier {

inline std::vector<float> random_values(std::int64_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

struct WeightShape {
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};

// Random bytes are valid blocks of any format once every f16 in them is a small finite number.
inline std::vector<std::byte> random_weight(DType type, WeightShape shape) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(static_cast<std::size_t>(shape.outputs * row_bytes(type, shape.inputs)));
  if (type == DType::f32) {
    const auto values = random_values(shape.outputs * shape.inputs);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const std::uint16_t half = f32_to_f16(static_cast<float>(random() % 1000) / 1000 - 0.5f);
    std::memcpy(bytes.data() + i, &half, sizeof half);
  }
  return bytes;
}

// A weight on a device with room for `rows` random inputs and their outputs. The device must outlive it.
class LinearCase {
 public:
  LinearCase(Device& device, const WeightPart& part, std::int64_t rows)
      : device_(device),
        weight_(device.load_weight(std::span(&part, 1))),
        x_(device.tensor(DType::f32, {rows, part.inputs})),
        y_(device.tensor(DType::f32, {rows, part.outputs})) {
    upload<float>(device, random_values(rows * part.inputs), x_);
  }

  void run() const {
    const Projection projection{weight_.get(), {}, y_};
    device_.linear(x_, std::span(&projection, 1));
  }

  std::vector<float> answer() const {
    run();
    std::vector<float> values(static_cast<std::size_t>(y_.view.elements()));
    download<float>(device_, y_, values);
    return values;
  }

 private:
  Device& device_;
  std::unique_ptr<const Weight> weight_;
  Tensor x_, y_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace espalier
