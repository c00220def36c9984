// A device that notes how long the matrix products and the attention of another one take. Results are the inner
// device's, bit for bit. The clock is read only while it is switched on, so a run can be timed as a whole and by ops in
// turn. For devices whose ops have happened when they return. One thread at a time.
#pragma once

#include <memory>

#include "device/passing_device.h"

namespace espalier {

struct OpSeconds {
  double linear = 0;     // with the quantisation of its input
  double attention = 0;  // both forms
};

class TimedDevice final : public PassingDevice {
 public:
  explicit TimedDevice(std::unique_ptr<Device> inner) : PassingDevice(*inner), owned_(std::move(inner)) {}

  void start();      // from zero
  OpSeconds stop();  // what ops took since start()

 private:
  template <typename Op>
  void timed(double& seconds, const Op& op);
  void do_linear(ConstView x, std::span<const Projection> projections) override;
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;

  std::unique_ptr<Device> owned_;
  OpSeconds seconds_;
  bool running_ = false;
};

}  // namespace espalier
