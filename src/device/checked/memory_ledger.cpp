#include "device/checked/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace espalier {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr std::size_t kPatternBytes = 16384;

constexpr std::array<std::byte, kPatternBytes> make_poison(std::byte byte) {
  std::array<std::byte, kPatternBytes> pattern{};
  pattern.fill(byte);
  return pattern;
}
// As poison, but told apart from it.
constexpr std::array<std::byte, kGuardBytes> make_guard() {
  std::array<std::byte, kGuardBytes> pattern{};
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = i % 2 == 0 ? std::byte{0xfe} : std::byte{0xff};
  return pattern;
}
// As f32, f16 and bf16 a NaN, as an integer -1, as a mask value neither 0 nor 1.
constexpr auto kPoison = make_poison(std::byte{0xff});
// As f32 and bf16 6e16, as f16 235, as an integer 1532713819, as a mask value neither 0 nor 1.
constexpr auto kFinitePoison = make_poison(std::byte{0x5b});
constexpr auto kGuard = make_guard();

std::size_t slack_after(std::size_t bytes) {
  return (bytes + 31) / 32 * 32 + 32 - bytes;
}

ConstView as_view(ByteRange range) {
  return ConstView(range.begin, DType::u8, {range.end - range.begin});
}

}  // namespace

std::vector<ByteRange> ranges_of(const ConstView& view) {
  if (view.empty() || view.elements() == 0) return {};
  if (view.dense()) return {{view.data(), view.data() + view.bytes_spanned()}};
  std::vector<ByteRange> ranges;
  for (std::int64_t r = 0; r < view.dim(0); ++r) {
    const ConstView row = view.rows(r, 1);
    ranges.push_back({row.data(), row.data() + row.bytes_spanned()});
  }
  return ranges;
}

MemoryLedger::Region::Region(std::unique_ptr<Buffer> inner, std::size_t size, std::size_t slack)
    : inner_(std::move(inner)),
      data_(inner_->data() + kGuardBytes),
      size_(size),
      back_guard_(data_ + size + slack),
      written_(size) {}

const std::byte* MemoryLedger::Region::first_unwritten(ByteRange range) const {
  return data_ + written_.first_unwritten(offset(range.begin), offset(range.end));
}

void MemoryLedger::Region::mark_written(ByteRange range) {
  written_.mark(offset(range.begin), offset(range.end));
}

MemoryLedger::Region& MemoryLedger::allocate(std::size_t bytes) {
  const std::size_t slack = options_.slack ? slack_after(bytes) : 0;
  Region region(inner_->allocate(kGuardBytes + bytes + slack + kGuardBytes), bytes, slack);
  std::byte* const data = region.data();
  fill(data - kGuardBytes, kGuardBytes, kGuard);
  fill(data, bytes + slack, options_.finite ? kFinitePoison : kPoison);
  fill(region.back_guard_, kGuardBytes, kGuard);
  return regions_.emplace(data, std::move(region)).first->second;
}

void MemoryLedger::release(Region& region) noexcept {
  if (inner_ == nullptr) {
    regions_.erase(region.data());
    return;
  }
  try {
    retire(region);
  } catch (...) {
    if (!pending_) pending_ = std::current_exception();
    regions_.erase(region.data());
  }
}

void MemoryLedger::retire(Region& region) {
  check_guards({"free", "buffer"}, region);
  forget(region, {region.data(), region.data() + region.size()});
  region.live_ = false;
  quarantine_.push_back(region.data());
  quarantined_bytes_ += region.size();
  evict();
}

void MemoryLedger::evict() {
  while (quarantined_bytes_ > options_.quarantine_bytes) {
    const auto oldest = regions_.find(quarantine_.front());
    quarantine_.pop_front();
    quarantined_bytes_ -= oldest->second.size();
    regions_.erase(oldest);
  }
}

void MemoryLedger::close() noexcept {
  for (const std::byte* data : quarantine_) regions_.erase(data);
  quarantine_.clear();
  inner_ = nullptr;
}

MemoryLedger::Region& MemoryLedger::region_of(const CallSite& site, const ConstView& view) {
  const ByteRange range{view.data(), view.data() + view.bytes_spanned()};
  auto found = regions_.upper_bound(range.begin);
  if (found == regions_.begin() || range.begin >= (--found)->second.data() + found->second.size())
    throw RuleViolation(site, "R8", fmt::format("{} is not in memory of this device", view.describe()));
  Region& region = found->second;
  if (!region.live()) throw RuleViolation(site, "R8", fmt::format("{} is in a buffer that was freed", view.describe()));
  if (!region.contains(range))
    throw RuleViolation(site, "R8",
                        fmt::format("{} ends {} bytes behind its buffer of {} bytes", view.describe(),
                                    range.end - (region.data() + region.size()), region.size()));
  return region;
}

void MemoryLedger::forget(Region& region, ByteRange range) {
  const std::size_t begin = region.offset(range.begin), end = region.offset(range.end);
  fill(region.data() + begin, end - begin, options_.finite ? kFinitePoison : kPoison);
  region.written_.clear(begin, end);
}

void MemoryLedger::check_guards(const CallSite& site, const Region& region) const {
  const std::byte* const front = region.data() - kGuardBytes;
  if (!std::ranges::equal(read({front, front + kGuardBytes}), kGuard))
    throw RuleViolation(site, "R3", "the guard zone before its buffer was overwritten");
  if (!std::ranges::equal(read({region.back_guard_, region.back_guard_ + kGuardBytes}), kGuard))
    throw RuleViolation(site, "R3", "the guard zone behind its buffer was overwritten");
}

void MemoryLedger::check_all_guards(std::string_view op) const {
  for (const auto& [data, region] : regions_) check_guards({op, "buffer"}, region);
}

void MemoryLedger::throw_pending() {
  if (pending_) std::rethrow_exception(std::exchange(pending_, nullptr));
}

std::vector<std::byte> MemoryLedger::read(ByteRange range) const {
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.end - range.begin));
  inner_->download(as_view(range), bytes);
  return bytes;
}

void MemoryLedger::read_into(const ConstView& view, std::span<std::byte> to) const {
  for (ByteRange range : ranges_of(view)) {
    const auto bytes = static_cast<std::size_t>(range.end - range.begin);
    inner_->download(as_view(range), to.first(bytes));
    to = to.subspan(bytes);
  }
}

void MemoryLedger::fill(std::byte* begin, std::size_t bytes, std::span<const std::byte> pattern) {
  for (std::size_t done = 0; done < bytes; done += pattern.size()) {
    const std::size_t piece = std::min(pattern.size(), bytes - done);
    inner_->upload(pattern.first(piece), View(begin + done, DType::u8, {static_cast<std::int64_t>(piece)}));
  }
}

}  // namespace espalier
