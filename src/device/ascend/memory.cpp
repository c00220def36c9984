#include "device/ascend/memory.h"

#include <algorithm>

#include "base/error.h"
#include "device/ascend/errors.h"

namespace espalier::ascend {
namespace {

constexpr std::size_t kArenaAlignment = 64;
constexpr std::size_t kArenaSlack = 32;

constexpr std::size_t aligned(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

double mebibytes(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

Memory::Memory(std::shared_ptr<Card> card, std::size_t bytes, std::string_view what)
    : card_(std::move(card)), size_(bytes) {
  void* memory = nullptr;
  const Api& api = card_->api();
  const AclCode code = api.aclrtMalloc(&memory, bytes, AclMemoryPolicy::huge_first);
  if (code == kNoMemory) {
    const auto [free, total] = card_->memory();
    device_error("Ascend: aclrtMalloc: error {}: no memory for {} ({:.1f} MiB): {:.1f} of {:.1f} MiB are free", code,
                 what, mebibytes(bytes), mebibytes(free), mebibytes(total));
  }
  if (code != 0) throw_failure(api, api.aclrtMalloc.name, code);
  data_ = static_cast<std::byte*>(memory);
}

Memory::~Memory() {
  card_->settle();
  card_->api().aclrtFree(data_);
}

void Memory::fill_with_zeros() {
  const Api& api = card_->api();
  card_->note_work();
  call(api, api.aclrtMemsetAsync, data_, size_, 0, size_, card_->stream());
}

Arena::Arena(std::shared_ptr<Card> card, std::string_view what, std::size_t bytes)
    : card_(std::move(card)), what_(what) {
  all_.push_back(std::make_unique<Memory>(card_, bytes, what_));
}

std::byte* Arena::take(std::size_t bytes) {
  const std::size_t begin = used_;
  const std::size_t end = begin + aligned(bytes + kArenaSlack, kArenaAlignment);
  if (end > all_.back()->size()) {
    if (card_->capturing()) throw CaptureNeedsMemory();
    all_.push_back(std::make_unique<Memory>(card_, std::max(end, 2 * all_.back()->size()), what_));
  }
  used_ = end;
  return all_.back()->data() + begin;
}

}  // namespace espalier::ascend
