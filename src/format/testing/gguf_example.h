// What the tests of the GGUF reader share: a valid file to read, cut and damage, and what the reader says about a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf_file.h"
#include "format/testing/complaint.h"
#include "format/testing/gguf_builder.h"

namespace espalier {

// A valid file with every kind of metadata value and two tensors.
inline GgufBuilder gguf_example() {
  return GgufBuilder()
      .set("general.architecture", "llama")
      .set("a.integer", 7u)
      .set("a.bool", true)
      .set("a.float", 0.5f)
      .set("a.strings", std::vector<std::string>{"x", "", "yz"})
      .set("a.integers", std::vector<std::int16_t>{1, -2})
      .tensor("first", DType::f32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
      .tensor("second", DType::q4_0, {2, 64}, zeros(2 * 2 * 18));
}

inline std::string complaint_about(std::string_view bytes) {
  const std::vector<std::byte> file = file_of(bytes);
  return complaint([&] { parse_gguf(file, "m.gguf"); });
}

inline std::string complaint_about(const GgufBuilder& builder) {
  return complaint_about(builder.bytes());
}

}  // namespace espalier
