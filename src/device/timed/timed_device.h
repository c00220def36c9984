// A device that notes how long the ops of another one take. It computes nothing: results are the inner device's, bit
// for bit, and so are its name and its shapes. The clock is read only while it is switched on, so a run can be timed as
// a whole and by ops in turn. For devices whose ops have happened when they return. One thread at a time.
#pragma once

#include <memory>

#include "device/device.h"

namespace espalier {

struct OpSeconds {
  double linear = 0;     // with the quantisation of its input
  double attention = 0;  // both forms
  double other = 0;      // every other op
};

class TimedDevice : public Device {
 public:
  virtual void start() = 0;      // from zero
  virtual OpSeconds stop() = 0;  // what ops took since start()
};

std::unique_ptr<TimedDevice> make_timed_device(std::unique_ptr<Device> inner);

}  // namespace espalier
