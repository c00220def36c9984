// Memory of the CPU device: on cache lines, and on huge pages where the system grants them (about a tenth more
// bandwidth when weights are streamed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace espalier::cpu {

struct FreeMemory {
  void operator()(std::byte* memory) const;
};
using HostMemory = std::unique_ptr<std::byte[], FreeMemory>;

// Not initialised, aligned to a cache line, from 2 MiB on to a huge page. Throws DeviceError when there is none.
HostMemory allocate_memory(std::size_t bytes);

// Memory that grows and is never shrunk; contents do not survive growing.
class Scratch {
 public:
  std::byte* at_least(std::size_t bytes);
  template <typename T>
  T* of(std::int64_t count) {
    return reinterpret_cast<T*>(at_least(static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  HostMemory memory_;
  std::size_t size_ = 0;
};

// Carves small pieces from large ones, so that weights of a few hundred kilobytes lie on huge pages too. A piece keeps
// its slab alive: all weights cut from one slab share it. Thread-safe.
class WeightArena {
 public:
  std::shared_ptr<std::byte[]> allocate(std::size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<std::byte[]> slab_;
  std::size_t used_ = 0;
};

}  // namespace espalier::cpu
