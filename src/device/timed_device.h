// A device that notes how long the matrix products and the attention of another one take. Results are the inner
// device's, bit for bit. The clock is read only while it is switched on, so a run can be timed as a whole and by ops in
// turn. A device with memory of its own, whose ops only begin when they are called, is waited for before and behind
// each op that is timed. Steps are the inner device's, which may record them, but while the clock runs. One thread at a
// time.
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
  // input, output: of the op
  template <typename Op>
  void timed(double& seconds, ConstView input, ConstView output, const Op& op);
  void wait_for(ConstView operand);
  std::unique_ptr<Recordings> do_make_recordings() override { return inner().make_recordings(); }
  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    running_ ? ops() : inner().step(recordings, key, ops);
  }
  void do_linear(ConstView x, std::span<const Projection> projections) override;
  void do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;
  void do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) override;

  std::unique_ptr<Device> owned_;
  OpSeconds seconds_;
  bool running_ = false;
};

}  // namespace espalier
