#include "memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ascend_fake {
namespace {

constexpr uint16_t kPoison = 0x7FFF;  // NaN as f16, bf16 and f32; huge as an integer

void poison(uint8_t* bytes, size_t count, uint64_t address) {
  const auto low = static_cast<uint8_t>(address % 2 == 0 ? kPoison : kPoison >> 8);
  const auto high = static_cast<uint8_t>(address % 2 == 0 ? kPoison >> 8 : kPoison);
  for (size_t i = 0; i + 1 < count; i += 2) {
    bytes[i] = low;
    bytes[i + 1] = high;
  }
  if (count % 2 == 1) bytes[count - 1] = low;
}

}  // namespace

Allocation::Allocation(uint64_t address, size_t size, size_t room, const Origin& origin)
    : address_(address),
      size_(size),
      room_(room),
      origin_(origin),
      bytes_(new uint8_t[room]),
      written_((room + 63) / 64, 0),
      unwritten_(size) {
  poison(bytes_.get(), room, address);
}

// Calls change with every word that has bits of the range, and a mask of these.
template <typename Change>
void Allocation::change_bits(const Range& range, Change change) {
  const uint64_t begin = range.begin - address_;
  const uint64_t end = range.end - address_;
  for (uint64_t word = begin / 64; word * 64 < end; ++word) {
    uint64_t mask = ~0ull;
    if (word * 64 < begin) mask &= ~0ull << (begin % 64);
    if (end < word * 64 + 64) mask &= ~0ull >> (64 - end % 64);
    change(written_[word], mask);
  }
}

void Allocation::mark_written(const Range& range) {
  if (unwritten_ == 0) return;
  change_bits(range, [this](uint64_t& word, uint64_t mask) {
    unwritten_ -= static_cast<size_t>(std::popcount(mask & ~word));
    word |= mask;
  });
}

void Allocation::mark_garbage(const Range& range) {
  poison(at(range.begin), range.end - range.begin, range.begin);
  change_bits(range, [this](uint64_t& word, uint64_t mask) {
    unwritten_ += static_cast<size_t>(std::popcount(mask & word));
    word &= ~mask;
  });
}

bool Allocation::all_written(const Range& range) const {
  if (unwritten_ == 0) return true;
  bool all = true;
  const_cast<Allocation*>(this)->change_bits(
      range, [&](uint64_t& word, uint64_t mask) { all = all && (word & mask) == mask; });
  return all;
}

// Addresses are multiples of 64 and never of 128, so that nobody relies on more than the documents promise.
void* DeviceMemory::allocate(size_t size, size_t slack, const Origin& origin) {
  const size_t room = (size + 31) / 32 * 32 + slack;
  const uint64_t address = (next_ + 127) / 128 * 128 + 64;
  next_ = address + room + 4096;
  live_.try_emplace(address, address, size, room, origin);
  live_bytes_ += room;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  return reinterpret_cast<void*>(address);
}

Allocation* DeviceMemory::containing(const Range& range) {
  auto found = live_.upper_bound(range.begin);
  if (found == live_.begin()) return nullptr;
  --found;
  return range.end <= found->first + found->second.size() ? &found->second : nullptr;
}

Allocation* DeviceMemory::beginning(uint64_t address) {
  const auto found = live_.find(address);
  return found == live_.end() ? nullptr : &found->second;
}

const Origin* DeviceMemory::freed(uint64_t address) const {
  const auto found = freed_.find(address);
  return found == freed_.end() ? nullptr : &found->second;
}

void DeviceMemory::free(uint64_t address, const Origin& origin) {
  live_bytes_ -= live_.at(address).room();
  live_.erase(address);
  freed_[address] = origin;
}

bool DeviceMemory::written(const Ranges& ranges) {
  return std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    const Allocation* home = containing(range);
    return home == nullptr || home->all_written(range);
  });
}

const NzMatrix* DeviceMemory::converted(const Range& range) {
  Allocation* home = containing(range);
  if (home == nullptr) return nullptr;
  for (const auto& [address, matrix] : home->converted) {
    if (overlap(range, {address, address + matrix.bytes})) return &matrix;
  }
  return nullptr;
}

void DeviceMemory::overwrite(const Range& range) {
  Allocation* home = containing(range);
  if (home == nullptr) return;
  std::erase_if(home->converted, [&](const auto& entry) {
    return overlap(range, {entry.first, entry.first + entry.second.bytes});
  });
}

void DeviceMemory::clear() {
  live_.clear();
  freed_.clear();
  live_bytes_ = 0;
  peak_bytes_ = 0;
}

void* PinnedMemory::allocate(size_t size, const Origin& origin) {
  auto bytes = std::make_unique<uint8_t[]>(size + 64);
  const uint64_t address = (reinterpret_cast<uint64_t>(bytes.get()) + 63) / 64 * 64;
  poison(reinterpret_cast<uint8_t*>(address), size, address);
  live_.emplace(address, Block{size, origin, std::move(bytes)});
  return reinterpret_cast<void*>(address);
}

std::map<uint64_t, PinnedMemory::Block>::const_iterator PinnedMemory::before(uint64_t address) const {
  auto found = live_.upper_bound(address);
  return found == live_.begin() ? live_.end() : --found;
}

bool PinnedMemory::contains(const Range& range) const {
  const auto block = before(range.begin);
  return block != live_.end() && range.end <= block->first + block->second.size;
}

bool PinnedMemory::touches(const Range& range) const {
  const auto block = before(range.begin);
  return block != live_.end() && range.begin < block->first + block->second.size;
}

void PinnedMemory::free(uint64_t address, bool in_use) {
  const auto block = live_.find(address);
  if (in_use) haunted_.push_back(std::move(block->second));
  live_.erase(block);
}

Range PinnedMemory::range_at(uint64_t address) const {
  const auto block = live_.find(address);
  return block == live_.end() ? Range{} : Range{address, address + block->second.size};
}

}  // namespace ascend_fake
