#include "device/cpu/host_memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/error.h"

namespace espalier::cpu {
namespace {

constexpr std::size_t kLine = 64, kHugePage = std::size_t{2} << 20, kSlab = std::size_t{32} << 20;

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

void FreeMemory::operator()(std::byte* memory) const {
  std::free(memory);
}

HostMemory allocate_memory(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  const std::size_t size = round_up(bytes, alignment);
  void* const memory = size < bytes ? nullptr : std::aligned_alloc(alignment, size);
  if (memory == nullptr) device_error("aligned_alloc: no memory for {} bytes", bytes);
  // A refusal costs speed only.
  if (alignment == kHugePage) (void)madvise(memory, size, MADV_HUGEPAGE);
  return HostMemory(static_cast<std::byte*>(memory));
}

std::byte* Scratch::at_least(std::size_t bytes) {
  if (size_ < bytes) {
    memory_.reset();
    size_ = 0;
    memory_ = allocate_memory(bytes + bytes / 4);
    size_ = bytes + bytes / 4;
  }
  return memory_.get();
}

std::shared_ptr<std::byte[]> WeightArena::allocate(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kLine);
  if (size >= kSlab / 2) return allocate_memory(size);
  const std::lock_guard lock(mutex_);
  if (slab_ == nullptr || used_ + size > kSlab) {
    slab_ = allocate_memory(kSlab);
    used_ = 0;
  }
  std::shared_ptr<std::byte[]> piece(slab_, slab_.get() + used_);
  used_ += size;
  return piece;
}

}  // namespace espalier::cpu
