// A device that counts what its callers ask of it: what a round costs besides computing. All else is the inner
// device's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/passing_device.h"

namespace espalier {

struct CallCounts {
  std::int64_t synchronisations = 0;  // downloads, of any number of parts, and memory that was lent
  std::int64_t uploads = 0;
  std::int64_t ops = 0;        // inside and outside of steps
  std::int64_t kv_copies = 0;  // of those
  std::int64_t allocated_bytes = 0;

  bool operator==(const CallCounts&) const = default;
};
// What was counted between two looks.
CallCounts operator-(const CallCounts& later, const CallCounts& earlier);

class CountingDevice final : public PassingDevice {
 public:
  explicit CountingDevice(std::unique_ptr<Device> inner);

  const CallCounts& counts() const { return counts_; }  // since it was made

  std::string_view name() const override { return name_; }

 private:
  void before(std::string_view call) override;

  std::unique_ptr<Buffer> do_allocate(std::size_t bytes) override;
  std::span<const std::byte> do_lend(ConstView from) override;
  // The inner device's own step: one that checks refuses memory calls inside.
  std::unique_ptr<Recordings> do_make_recordings() override { return inner().make_recordings(); }
  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    inner().step(recordings, key, ops);
  }

  std::unique_ptr<Device> owned_;
  std::string name_;
  CallCounts counts_;
};

}  // namespace espalier
