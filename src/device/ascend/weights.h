// A weight matrix in the NPU's memory, dense [outputs, inputs] in one type: the widest that its parts need. Block
// formats are dequantised at load, to f16.
#pragma once

#include <memory>
#include <span>

#include "device/ascend/descriptors.h"
#include "device/ascend/memory.h"
#include "device/ascend/staging.h"
#include "device/device.h"

namespace espalier::ascend {

// f32 where a part is f32, or is bf16 on a card without it; else bf16 where one is bf16; else f16.
AclType stored_type(std::span<const WeightPart> parts, bool has_bf16);

class AscendWeight final : public Weight {
 public:
  AscendWeight(std::span<const WeightPart> parts, const std::shared_ptr<Card>& card, Staging& staging);

  AclType type() const { return type_; }
  Layout rows() const;        // [outputs, inputs]
  Layout transposed() const;  // [inputs, outputs], the same memory

 private:
  AclType type_;
  Memory memory_;
};

}  // namespace espalier::ascend
