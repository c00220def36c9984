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

void TimedDevice::wait_for(ConstView operand) {
  const ConstView first(operand.data(), DType::f32, {1});
  if (!inner().lend(first).empty()) return;
  float element;
  inner().download(first, std::as_writable_bytes(std::span(&element, 1)));
}

template <typename Op>
void TimedDevice::timed(double& seconds, ConstView input, ConstView output, const Op& op) {
  if (!running_) return op();
  wait_for(input);
  const auto begin = std::chrono::steady_clock::now();
  op();
  wait_for(output);
  seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void TimedDevice::do_linear(ConstView x, std::span<const Projection> projections) {
  timed(seconds_.linear, x, projections[0].y, [&] { inner().linear(x, projections); });
}

void TimedDevice::do_attention(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  timed(seconds_.attention, q, out, [&] { inner().attention(q, kv, rows, scale, out); });
}

void TimedDevice::do_attention_eager(ConstView q, const KvViews& kv, const RowTables& rows, float scale, View out) {
  timed(seconds_.attention, q, out, [&] { inner().attention_eager(q, kv, rows, scale, out); });
}

}  // namespace espalier
