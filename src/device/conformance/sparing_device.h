// A device that wants recorded steps of some row counts alone, as a GPU does, on any machine: steps are padded to them.
// All else is the inner device's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/passing_device.h"

namespace espalier {

class SparingDevice final : public PassingDevice {
 public:
  // recorded: ascending
  SparingDevice(std::unique_ptr<Device> inner, std::vector<std::int64_t> recorded)
      : PassingDevice(*inner), owned_(std::move(inner)), recorded_(std::move(recorded)) {}

  std::span<const std::int64_t> recorded_rows() const override { return recorded_; }

 private:
  std::unique_ptr<Recordings> do_make_recordings() override { return inner().make_recordings(); }
  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    inner().step(recordings, key, ops);
  }

  std::unique_ptr<Device> owned_;
  std::vector<std::int64_t> recorded_;
};

}  // namespace espalier
