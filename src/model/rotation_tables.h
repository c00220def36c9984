// Cosines and sines of the rotary angles of every position, as the rope op reads them: once for each network, whatever
// number of workspaces it serves (at 131,072 positions of 64 angles, 67 MB).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "device/device.h"
#include "model/rope.h"

namespace espalier {

struct RotationTables {
  Tensor cosine, sine;  // f32 [positions, head_size / 2]

  std::int64_t positions() const { return cosine.view.dim(0); }
};

RotationTables make_rotation_tables(Device& device, const Rope& rope, std::int64_t positions);

// The tables of one network, made when a workspace first asks for them, and longer ones when one needs more positions:
// an entry does not depend on how many there are. Like the device, for one thread at a time.
class Rotation {
 public:
  // The device must outlive this.
  Rotation(Device& device, Rope rope) : device_(&device), rope_(std::move(rope)) {}

  // For at least so many positions. Shared with the workspaces made so far: tables that are too short for a new one
  // stay where they are for those that use them.
  std::shared_ptr<const RotationTables> tables(std::int64_t positions);

 private:
  Device* device_;
  Rope rope_;
  std::shared_ptr<const RotationTables> longest_;
};

}  // namespace espalier
