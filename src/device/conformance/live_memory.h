// Which memory and which weights of a device are there, each with a number of its own: an address may come back as
// something else, a number never does. Shared by a device and what it handed out, which may outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "device/device.h"

namespace espalier {

class LiveMemory {
 public:
  using Number = std::int64_t;

  // Buffers and weights that are known from now on until they are freed.
  static std::unique_ptr<Buffer> watch(const std::shared_ptr<LiveMemory>& live, std::unique_ptr<Buffer> buffer);
  static std::unique_ptr<const Weight> watch(const std::shared_ptr<LiveMemory>& live,
                                             std::unique_ptr<const Weight> weight);

  // The buffer that holds all of the view; nothing: none does.
  std::optional<Number> buffer_of(const ConstView& view) const;
  std::optional<Number> number_of(const Weight* weight) const;
  // What was given to watch().
  static const Weight& inner(const Weight& weight);

 private:
  struct LiveBuffer {
    std::size_t bytes = 0;
    Number number = 0;
  };
  class WatchedBuffer;
  class WatchedWeight;

  std::map<const std::byte*, LiveBuffer> buffers_;  // by address
  std::map<const Weight*, Number> weights_;
  Number next_ = 1;
};

}  // namespace espalier
