#include "testing/recording_devices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/judged_device.h"
#include "device/conformance/recording_device.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace espalier::testing {
namespace {

// One compares every step with what was recorded, the other calls model code once for each key.
std::unique_ptr<Device> recording_reference(int threads) {
  return make_recording_device(make_reference_device(threads), Replay::compared);
}
std::unique_ptr<Device> recording_cpu(int threads) {
  return make_recording_device(make_cpu_device({.threads = threads}), Replay::blind);
}

}  // namespace

std::vector<NamedDevice> recording_devices() {
  if (judged_device()) return {};
  return {{"recording_reference", recording_reference}, {"recording_cpu", recording_cpu}};
}

void expect_replays(const Device& device) {
  const auto* recording = dynamic_cast<const RecordingDevice*>(&device);
  if (recording == nullptr) return;
  const RecordingCounts& counts = recording->counts();
  fmt::print("{} steps recorded, {} replayed\n", counts.recorded, counts.replayed);
  EXPECT_GT(counts.replayed, 0);
}

}  // namespace espalier::testing
