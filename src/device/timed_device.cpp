#include "device/timed_device.h"

#include <chrono>

namespace espalier {

void TimedDevice::start() {
  seconds_ = {};
  running_ = true;
}

OpSeconds TimedDevice::stop() {
  running_ = false;
  return seconds_;
}

template <typename Op>
void TimedDevice::timed(double& seconds, const Op& op) {
  if (!running_) return op();
  const auto begin = std::chrono::steady_clock::now();
  op();
  seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void TimedDevice::do_linear(ConstView x, std::span<const Projection> projections) {
  timed(seconds_.linear, [&] { inner().linear(x, projections); });
}

void TimedDevice::do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  timed(seconds_.attention, [&] { inner().attention(q, kv, rows, scale, out); });
}

void TimedDevice::do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  timed(seconds_.attention, [&] { inner().attention_eager(q, kv, rows, scale, out); });
}

}  // namespace espalier
