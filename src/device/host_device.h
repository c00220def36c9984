// The beginning of devices whose memory is the host's: what moves is copied at once, and what lies there can be lent.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "device/device.h"

namespace espalier {

class HostDevice : public Device {
 private:
  void do_upload(std::span<const std::byte> from, View to) final { std::memcpy(to.data(), from.data(), from.size()); }

  void do_download(std::span<const Download> parts) final {
    for (const auto& [from, to] : parts) std::memcpy(to.data(), from.data(), to.size());
  }

  std::span<const std::byte> do_lend(ConstView from) final {
    return {from.data(), static_cast<std::size_t>(from.bytes_spanned())};
  }
};

}  // namespace espalier
