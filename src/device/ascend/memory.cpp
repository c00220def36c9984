#include "device/ascend/memory.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/ascend/errors.h"

namespace espalier::ascend {
namespace {

constexpr std::size_t kArenaAlignment = 64;
constexpr std::size_t kArenaSlack = 32;
constexpr std::size_t kPinnedAlignment = 64;
constexpr std::size_t kPiecesOfStaging = 4;  // one is filled while others are on their way

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

Staging::Staging(std::shared_ptr<Card> card, std::size_t bytes) : card_(std::move(card)), size_(bytes) {
  void* memory = nullptr;
  const Api& api = card_->api();
  const AclCode code = api.aclrtMallocHost(&memory, bytes);
  if (code == kNoMemory)
    device_error("Ascend: aclrtMallocHost: error {}: no pinned memory for copies ({:.1f} MiB)", code, mebibytes(bytes));
  if (code != 0) throw_failure(api, api.aclrtMallocHost.name, code);
  pinned_ = static_cast<std::byte*>(memory);
}

Staging::~Staging() {
  card_->settle();
  card_->api().aclrtFreeHost(pinned_);
}

bool Staging::has_room(std::size_t bytes) const {
  return aligned(used_, kPinnedAlignment) + bytes <= size_;
}

// Where `bytes` lie in the pinned memory, which has room for them.
std::size_t Staging::reserve(std::size_t bytes) {
  const std::size_t begin = aligned(used_, kPinnedAlignment);
  used_ = begin + bytes;
  return begin;
}

std::size_t Staging::piece_of(std::size_t bytes) const {
  return std::min(bytes, size_ / kPiecesOfStaging);
}

void Staging::wait() {
  card_->synchronise();
  used_ = 0;
}

void Staging::upload(std::span<const std::byte> from, std::byte* to) {
  const Api& api = card_->api();
  while (!from.empty()) {
    const std::size_t piece = piece_of(from.size());
    if (!has_room(piece)) wait();
    std::byte* const pinned = pinned_ + reserve(piece);
    std::memcpy(pinned, from.data(), piece);
    card_->note_work();
    call(api, api.aclrtMemcpyAsync, to, piece, pinned, piece, AclCopy::host_to_device, card_->stream());
    from = from.subspan(piece);
    to += piece;
  }
}

void Staging::download(std::span<const Download> parts) {
  const Api& api = card_->api();
  std::vector<Waiting> waiting;
  for (const auto& [view, target] : parts) {
    const std::byte* from = view.data();
    for (std::span<std::byte> to = target; !to.empty();) {
      const std::size_t piece = piece_of(to.size());
      if (!has_room(piece)) deliver(waiting);
      waiting.push_back({reserve(piece), to.first(piece)});
      card_->note_work();
      call(api, api.aclrtMemcpyAsync, pinned_ + waiting.back().offset, piece, from, piece, AclCopy::device_to_host,
           card_->stream());
      to = to.subspan(piece);
      from += piece;
    }
  }
  deliver(waiting);
}

void Staging::deliver(std::vector<Waiting>& waiting) {
  wait();
  for (const auto& [offset, to] : waiting) std::memcpy(to.data(), pinned_ + offset, to.size());
  waiting.clear();
}

}  // namespace espalier::ascend
