// Weights in block formats drawn at random for any configuration, under the names of Hugging Face. Of the size that
// keeps scores and logits apart, as trained ones would.
#pragma once

#include <cstdint>
#include <list>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_info.h"
#include "model/config.h"

namespace espalier::testing {

class RandomBlocks : public TensorSource {
 public:
  // Matrices whose rows are not whole blocks of the type are q8_0; requires widths that are multiples of 32.
  RandomBlocks(const ModelConfig& config, DType type, std::uint32_t seed);

  const TensorInfo* find(std::string_view name) const override;
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  std::string_view description() const override { return "random blocks"; }

 private:
  void add_layer(const ModelConfig& config, const std::string& prefix);
  void matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, float gain);
  void vector(const std::string& name, std::int64_t size, float mean, float most);
  void add(const std::string& name, DType type, std::vector<std::int64_t> shape, std::vector<std::byte> bytes);

  DType type_;
  std::mt19937 random_;
  std::list<std::vector<std::byte>> bytes_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace espalier::testing
