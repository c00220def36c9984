// The device for Ascend NPUs, on AscendCL and aclnn (docs/ascend.md). CANN is loaded when the device is opened, so this
// is part of every build; where there is no CANN, driver or NPU it says so in one line. This header and library.h are
// all that the rest of the program sees of it.
//
// Everything runs asynchronously on one stream; download() waits. A step is captured as a graph when its key comes for
// the second time. Rows are not independent: the order of a sum may depend on how many rows there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/ascend/library.h"
#include "device/device.h"

namespace espalier::ascend {

// An NPU as `espalier inspect --devices` shows it.
struct DeviceInfo {
  int index = 0;
  std::string name = {};   // of the chip
  std::size_t memory = 0;  // bytes
  std::size_t free_memory = 0;
  std::string problem = {};  // why it cannot be used; empty: it can
};

struct Devices {
  std::vector<DeviceInfo> npus = {};
  std::string runtime = {};  // the version of AscendCL, "1.16"; empty: none, or it does not tell
  std::string problem = {};  // why there is none, in a line; empty: there is one that can be used
};

// Never throws for want of CANN, a driver or an NPU.
Devices list_devices(const LibraryOptions& library = {});

struct Options {
  int index = 0;  // of the NPU
  LibraryOptions library = {};
  bool recorded = true;                               // steps as graphs
  bool fused = true;                                  // attention by the fused operator, where it can
  std::int64_t most_graphs = 256;                     // each takes streams, of which a card has fewer than 2000
  std::size_t staging_bytes = std::size_t{32} << 20;  // pinned memory for copies
  std::size_t arena_bytes = std::size_t{16} << 20;    // of each of three that grow: workspaces and scratch
  std::int32_t timeout_ms = 600'000;                  // of a wait; for events where the runtime can end one
  std::function<void(std::string_view)> remark = {};  // a line that a user should see: something is not as asked for
};

// Throws DeviceError, in one line, where there is no such NPU or it cannot be used.
std::unique_ptr<Device> make_device(const Options& options = {});

// What is known of the card of an open device, for reports: much of it was found out when it opened (probes.h).
struct CardFacts {
  std::string chip = {};     // "Ascend910B4"
  std::string runtime = {};  // the version of AscendCL, "1.16"; empty: it does not tell
  std::string driver = {};   // where it says so in a file; empty: it does not
  std::size_t memory = 0;    // bytes; 0: it does not tell
  std::size_t free_memory = 0;
  int fused_version = 0;                             // of FusedInferAttentionScore; 0: the card has none
  bool f32_from_f16 = false, f32_from_bf16 = false;  // products of 16-bit matrices come unrounded
  bool fused_f16 = false, fused_bf16 = false;        // the fused attention gives the eager one's results over such keys
};
// Nothing for a device that was not made here.
std::optional<CardFacts> card_facts(const Device& device);

// Bytes that a linear weight of this type takes on the NPU, where block formats are not kept.
std::int64_t stored_bytes(DType type, std::int64_t elements);

}  // namespace espalier::ascend
