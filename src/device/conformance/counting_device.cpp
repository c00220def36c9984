#include "device/conformance/counting_device.h"

#include <utility>

namespace espalier {

CallCounts operator-(const CallCounts& later, const CallCounts& earlier) {
  return {.synchronisations = later.synchronisations - earlier.synchronisations,
          .uploads = later.uploads - earlier.uploads,
          .ops = later.ops - earlier.ops,
          .kv_copies = later.kv_copies - earlier.kv_copies,
          .allocated_bytes = later.allocated_bytes - earlier.allocated_bytes};
}

CountingDevice::CountingDevice(std::unique_ptr<Device> inner)
    : PassingDevice(*inner), owned_(std::move(inner)), name_("counting(" + std::string(owned_->name()) + ")") {}

void CountingDevice::before(std::string_view call) {
  if (call == "load_weight") return;
  if (call == "download") {
    ++counts_.synchronisations;
  } else if (call == "upload") {
    ++counts_.uploads;
  } else {
    ++counts_.ops;
    counts_.kv_copies += call == "kv_copy" ? 1 : 0;
  }
}

std::unique_ptr<Buffer> CountingDevice::do_allocate(std::size_t bytes) {
  counts_.allocated_bytes += static_cast<std::int64_t>(bytes);
  return inner().allocate(bytes);
}

// Who is refused has not waited.
std::span<const std::byte> CountingDevice::do_lend(ConstView from) {
  const std::span<const std::byte> lent = inner().lend(from);
  counts_.synchronisations += lent.empty() ? 0 : 1;
  return lent;
}

}  // namespace espalier
