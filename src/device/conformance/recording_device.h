// A device that records steps as a GPU does, on any machine: the first step under a key is written down, op by op with
// its views, and then played; every later one is played from the recording, and the caller's code is not called. So
// whoever lets a step depend on more than its key and the contents of its buffers gets wrong bits here, or an error:
// std::logic_error
//   - where a recording reads or writes memory, or uses a weight, that has been given back since,
//   - where a step takes memory that is not the device's,
//   - where memory is allocated, moved from or to the host, lent or discarded inside a step, or another step is begun,
//   - with Replay::compared, where the caller's code would now call something else than what was recorded.
// All else, and ops outside of steps, are the inner device's. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "device/passing_device.h"

namespace espalier {

enum class Replay {
  blind,     // the caller's code is called once for each key
  compared,  // it is called in every step, computes nothing, and has to call what was recorded
};

struct RecordingCounts {
  std::int64_t recorded = 0;  // steps under a key that was new to their recordings
  std::int64_t replayed = 0;  // the others
};

class RecordingDevice : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  virtual const RecordingCounts& counts() const = 0;  // since it was made
};

std::unique_ptr<RecordingDevice> make_recording_device(std::unique_ptr<Device> inner, Replay replay);

}  // namespace espalier
