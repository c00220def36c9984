#include "device/conformance/faulty_device.h"

#include <utility>

#include "base/error.h"

namespace espalier {

FaultyDevice::FaultyDevice(std::unique_ptr<Device> inner)
    : PassingDevice(*inner), owned_(std::move(inner)), name_("faulty(" + std::string(owned_->name()) + ")") {}

void FaultyDevice::set(std::int64_t calls_left, bool lost_for_good) {
  const std::lock_guard lock(mutex_);
  calls_left_ = calls_left;
  lost_for_good_ = lost_for_good;
}

bool FaultyDevice::will_fail() const {
  const std::lock_guard lock(mutex_);
  return calls_left_ > 0;
}

void FaultyDevice::before(std::string_view call) {
  const std::lock_guard lock(mutex_);
  if (calls_left_ == 0 || --calls_left_ > 0) return;
  if (lost_for_good_) calls_left_ = 1;
  device_error("{}: {}", call, lost_for_good_ ? "the device is lost" : "failed as told");
}

void FaultyDevice::do_upload(std::span<const std::byte> from, View to) {
  before("upload");
  inner().upload(from, to);
  ++uploads_;
}

void FaultyDevice::do_kv_copy(std::span<const KvViews> layers, ConstView from, ConstView to) {
  before("kv_copy");
  inner().kv_copy(layers, from, to);
  ++kv_copies_;
}

}  // namespace espalier
