// A device that holds its callers, and the device inside it, to the rules of the Ascend contract
// (docs/checked-device.md) on every call. It computes nothing: after its checks it calls the inner device, so results
// are the inner device's, bit for bit. A broken rule throws RuleViolation before the op runs; an op that writes outside
// its outputs is reported after it.
//
// Always checked:
//   R3   guard zones around every buffer stay intact, and so do the bytes next to every output
//   R4   fresh, discarded and freed memory holds poison (NaN; a large finite number where hidden keys are multiplied by
//        0, as the inner device may say); an op reads only elements that somebody wrote
//   R6   inputs and outputs overlap only where device.h says so
//   R8   every view lies in a live buffer of this device, every weight was loaded by it
//   R10-R14  indices are i32 (device.h checks this), in range, never negative; slots of a call are pairwise distinct
//   R19-R22  masks hold 0 or 1, have a multiple of 128 columns, hide padding columns, hide no row completely
//   R23  a row sees its context, its ancestors and itself, each once, all written; a mask says the same as the lists
//   R45  nothing is allocated, uploaded, downloaded or lent inside step(); synchronisations are counted
// The Ascend profile adds:
//   R1   no tensor without elements    R2  operands start on 32 bytes    R3  buffers start on 64 bytes and have slack
//   R4   poison is finite, whatever the inner device does with hidden keys: a leak shows as a wrong value, not as NaN
//   R5   attention, swiglu, kv_write and kv_copy take dense operands (device.h checks this); strided ones elsewhere are
//        counted
//   R32  KV blocks of 128, 256, 384 or 512 slots; a mask as wide as the block table
//   R37  swiglu takes gate and up in one tensor (device.h checks this)
//   R46  row counts are bucket sizes, the number of slots that kv_copy moves too; buckets begin at 2, since one query
//        row with a mask is silently wrong past key 512, and only outside of steps and of attention are there fewer
// and prefers dense masks and lends nothing, as such a device does.
//
// A step is never recorded: its ops run, and are looked at, each time. Like every device, for one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/checked/rule_violation.h"
#include "device/device.h"

namespace espalier {

enum class CheckedProfile { plain, ascend };

struct CheckedOptions {
  CheckedProfile profile = CheckedProfile::plain;
  // Freed buffers up to this size together are kept from reuse, so that a view of one is recognised.
  std::size_t quarantine_bytes = std::size_t{64} << 20;
};

struct CheckedCounts {
  std::int64_t synchronisations = 0;  // downloads by the caller and what was lent to it (R45)
  std::int64_t strided_copies = 0;    // strided operands, each a copy on an Ascend device (R5)
  std::int64_t non_finite_rows = 0;   // rows with a NaN or an infinity that entered a linear
};

class CheckedDevice : public Device {
 public:
  virtual const CheckedCounts& counts() const = 0;
  // Checks all guard zones now, and throws what was found wrong when a buffer was freed.
  virtual void verify() = 0;
};

std::unique_ptr<CheckedDevice> make_checked_device(std::unique_ptr<Device> inner, CheckedOptions options = {});

}  // namespace espalier
