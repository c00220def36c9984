// A tiny model on the CPU device, for tests of batches.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "model/transformer.h"

namespace espalier {

inline constexpr std::int32_t kTinyVocabulary = 272;

inline std::filesystem::path tiny_model() {
  return std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/smollm2";
}

class TinyModelTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device({.threads = 1});
  Transformer model_ = load_transformer(*device_, tiny_model());

  // A text like no other.
  static std::vector<std::int32_t> text(std::size_t count, std::size_t step) {
    std::vector<std::int32_t> tokens(count);
    for (std::size_t i = 0; i < count; ++i)
      tokens[i] = static_cast<std::int32_t>((i * step + i * i + step) % kTinyVocabulary);
    return tokens;
  }
};

}  // namespace espalier
