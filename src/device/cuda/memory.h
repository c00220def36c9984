// Memory of the device, and the pinned memory through which the host's bytes reach it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "device/cuda/errors.h"
#include "device/view.h"

namespace espalier::cuda {

// cudaMalloc, freed with the object. Freeing waits for the kernels that are under way.
class Memory {
 public:
  Memory() = default;
  // Throws DeviceError with what was wanted and what there is. what: what it is for, for that message
  Memory(std::size_t bytes, std::string_view what);
  // Nothing: there is not so much.
  static std::optional<Memory> if_there_is(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class DeviceBuffer final : public Buffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) : memory_(bytes, "a buffer") {}
  std::byte* data() override { return memory_.data(); }
  std::size_t size() const override { return memory_.size(); }

 private:
  Memory memory_;
};

// Memory that an op uses while it runs: the ops of a stream share it. What it has once handed out stays, because
// recorded steps hold its address; it grows by doubling where there is room for that. At first it is all zeros.
class Scratch {
 public:
  std::byte* at_least(std::size_t bytes);

 private:
  std::vector<Memory> all_;
};

// Moves bytes between host and device in stream order.
class Staging {
 public:
  explicit Staging(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // `from` may be reused at once.
  void upload(std::span<const std::byte> from, std::byte* to);
  // Begins to move `from` to the host; it is there after finish().
  void download(const std::byte* from, std::span<std::byte> to);
  void finish();

 private:
  struct Waiting {
    std::size_t offset;
    std::span<std::byte> to;
  };
  std::size_t reserve(std::size_t bytes);

  cudaStream_t stream_;
  std::byte* pinned_ = nullptr;
  std::size_t used_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace espalier::cuda
