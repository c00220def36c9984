// A device that fails when it is told to: a chosen call, or all from there on, throw DeviceError and do nothing. All
// else is the inner device's. For tests of what a failure leaves behind. It may be told so while another thread uses
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/passing_device.h"

namespace espalier {

class FaultyDevice final : public PassingDevice {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> inner);

  // The n-th call from now, n >= 1, throws; the calls behind it work again. Calls are allocations, uploads, downloads,
  // loans, weights and ops; discarding never fails.
  void fail_at(std::int64_t n) { set(n, false); }
  // That call and all behind it throw, as those of a GPU that is lost do.
  void lose_at(std::int64_t n) { set(n, true); }
  void never_fail() { set(0, false); }
  bool will_fail() const;

  std::int64_t uploads() const { return uploads_; }      // that worked
  std::int64_t kv_copies() const { return kv_copies_; }  // likewise

  std::string_view name() const override { return name_; }

 private:
  void set(std::int64_t calls_left, bool lost_for_good);
  void before(std::string_view call) override;

  void do_upload(std::span<const std::byte> from, View to) override;
  void do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) override;
  // The inner device's own step: one that checks refuses memory calls inside.
  std::unique_ptr<Recordings> do_make_recordings() override { return inner().make_recordings(); }
  void do_step(Recordings& recordings, const StepKey& key, const std::function<void()>& ops) override {
    inner().step(recordings, key, ops);
  }

  std::unique_ptr<Device> owned_;
  std::string name_;
  mutable std::mutex mutex_;     // of the next two
  std::int64_t calls_left_ = 0;  // 0: it works
  bool lost_for_good_ = false;   // the first failure is not the last
  std::int64_t uploads_ = 0;
  std::int64_t kv_copies_ = 0;
};

}  // namespace espalier
