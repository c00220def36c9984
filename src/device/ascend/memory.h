// Memory of the NPU, and what operators use of it while they run.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "device/ascend/card.h"
#include "device/device.h"

namespace espalier::ascend {

// aclrtMalloc. Freeing neither waits nor looks on the NPU's side, so this waits first.
class Memory {
 public:
  // Throws DeviceError with what was wanted and what there is. what: what it is for, for that message
  Memory(std::shared_ptr<Card> card, std::size_t bytes, std::string_view what);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // In stream order.
  void fill_with_zeros();

 private:
  std::shared_ptr<Card> card_;
  std::byte* data_ = nullptr;
  std::size_t size_;
};

// All zeros at first: a hidden key is multiplied by 0 and must be a number.
class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(std::shared_ptr<Card> card, std::size_t bytes) : memory_(std::move(card), bytes, "a buffer") {
    memory_.fill_with_zeros();
  }
  std::byte* data() override { return memory_.data(); }
  std::size_t size() const override { return memory_.size(); }

 private:
  Memory memory_;
};

// A captured step needs more memory than the step had when it ran op by op.
struct CaptureNeedsMemory {};

// Memory for what lives as long as an op, or a step: taken piece by piece, given back all at once. The ops of a stream
// run in order, so they share it. What it has once handed out stays, because recorded steps hold its address; it grows
// to what was wanted at once, at least twofold.
class Arena {
 public:
  // It begins with so many bytes.
  Arena(std::shared_ptr<Card> card, std::string_view what, std::size_t bytes);

  // What is in use; to be given back later, with what was taken since staying where it is until then.
  std::size_t used() const { return used_; }
  void give_back(std::size_t used = 0) { used_ = used; }
  // On 64 bytes, with the slack that kernels may touch behind it. Throws CaptureNeedsMemory.
  std::byte* take(std::size_t bytes);

 private:
  std::shared_ptr<Card> card_;
  std::string_view what_;
  std::vector<std::unique_ptr<Memory>> all_;  // the last one is in use
  std::size_t used_ = 0;                      // of the last one
};

}  // namespace espalier::ascend
