// A weight in the layout of panel_layout.h: each part of the file's types in panels of its own. Immutable.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/host_memory.h"
#include "device/device.h"

namespace espalier::cpu {

struct PackedPart {
  DType type = DType::f32;
  std::int64_t first_output = 0;
  std::int64_t outputs = 0;
  std::int64_t panels = 0;
  std::int64_t panel_bytes = 0;
  std::shared_ptr<const std::byte[]> memory = {};  // [panels, panel_bytes]; shared with other weights of its slab
};

class PackedWeight final : public Weight {
 public:
  PackedWeight(std::span<const WeightPart> parts, WeightArena& arena, ThreadPool& pool);

  const std::vector<PackedPart>& parts() const { return parts_; }

  // Row `output` as widen_row gives it for the file's bytes.
  void widen_row(std::int64_t output, std::span<float> values) const;

 private:
  std::vector<PackedPart> parts_;
};

}  // namespace espalier::cpu
