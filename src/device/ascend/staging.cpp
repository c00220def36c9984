#include "device/ascend/staging.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "device/ascend/errors.h"

namespace espalier::ascend {
namespace {

constexpr std::size_t kPinnedAlignment = 64;

std::size_t room_for(std::size_t bytes) {
  return (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
}

}  // namespace

Staging::Pinned::Pinned(const Api& api, std::size_t bytes) : api_(api) {
  void* memory = nullptr;
  const AclCode code = api.aclrtMallocHost(&memory, bytes);
  if (code == kNoMemory)
    device_error("Ascend: aclrtMallocHost: error {}: no pinned memory for copies ({:.1f} MiB)", code,
                 static_cast<double>(bytes) / (1 << 20));
  if (code != 0) throw_failure(api, api.aclrtMallocHost.name, code);
  data_ = static_cast<std::byte*>(memory);
}

Staging::Pinned::~Pinned() {
  api_.aclrtFreeHost(data_);
}

Staging::Region::Region(const Api& api) : api_(api) {
  call(api, api.aclrtCreateEventExWithFlag, &event_, kStreamProgress);
}

Staging::Region::~Region() {
  api_.aclrtDestroyEvent(event_);
}

Staging::Staging(std::shared_ptr<Card> card, std::size_t bytes)
    : card_(std::move(card)),
      region_bytes_(bytes / kRegions / kPinnedAlignment * kPinnedAlignment),
      pinned_(card_->api(), bytes),
      regions_{Region(card_->api()), Region(card_->api()), Region(card_->api()), Region(card_->api())} {
  check(region_bytes_ > 0, "staging: {} bytes are too few", bytes);
}

Staging::~Staging() {
  card_->settle();
}

std::size_t Staging::piece_of(std::size_t bytes) const {
  return std::min(bytes, region_bytes_);
}

bool Staging::has_room(std::size_t bytes) const {
  return used_ + bytes <= region_bytes_;
}

// Room in the current region, which has it.
std::byte* Staging::reserve(std::size_t bytes) {
  std::byte* const place = pinned_.data() + current_ * region_bytes_ + used_;
  used_ += room_for(bytes);
  return place;
}

void Staging::next_region() {
  card_->record(regions_[current_].event());
  regions_[current_].under_way = true;
  const std::size_t next = (current_ + 1) % kRegions;
  if (regions_[next].under_way) card_->wait_for(regions_[next].event());
  regions_[next].under_way = false;
  current_ = next;
  used_ = 0;
}

void Staging::upload(std::span<const std::byte> from, std::byte* to) {
  const Api& api = card_->api();
  while (!from.empty()) {
    const std::size_t piece = piece_of(from.size());
    if (!has_room(piece)) next_region();
    std::byte* const pinned = reserve(piece);
    std::memcpy(pinned, from.data(), piece);
    card_->note_work();
    call(api, api.aclrtMemcpyAsync, to, piece, pinned, piece, AclCopy::host_to_device, card_->stream());
    from = from.subspan(piece);
    to += piece;
  }
}

void Staging::download(std::span<const Download> parts) {
  const Api& api = card_->api();
  std::deque<Piece> pieces;
  const auto deliver_first = [&] {
    std::memcpy(pieces.front().to.data(), pieces.front().pinned, pieces.front().to.size());
    pieces.pop_front();
  };
  for (const auto& [view, target] : parts) {
    const std::byte* from = view.data();
    for (std::span<std::byte> to = target; !to.empty();) {
      const std::size_t piece = piece_of(to.size());
      if (!has_room(piece)) {
        next_region();
        while (!pieces.empty() && pieces.front().region == current_) deliver_first();
      }
      std::byte* const pinned = reserve(piece);
      card_->note_work();
      call(api, api.aclrtMemcpyAsync, pinned, piece, from, piece, AclCopy::device_to_host, card_->stream());
      pieces.push_back({current_, pinned, to.first(piece)});
      to = to.subspan(piece);
      from += piece;
    }
  }
  all_arrived();
  while (!pieces.empty()) deliver_first();
}

void Staging::all_arrived() {
  card_->synchronise();
  for (Region& region : regions_) region.under_way = false;
  used_ = 0;
}

}  // namespace espalier::ascend
