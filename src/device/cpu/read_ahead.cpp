#include "device/cpu/read_ahead.h"

namespace espalier::cpu {
namespace {

constexpr std::int64_t kLineBytes = 64, kLinesPerCall = 8;
constexpr std::int64_t kPanels = 4;             // side by side, as the kernels read them
constexpr std::int64_t kMostBytes = 64 * 1024;  // what a pause between two linears has time for

}  // namespace

ReadAhead::ReadAhead(int threads) : targets_(std::make_unique<Target[]>(static_cast<std::size_t>(threads))) {}

void ReadAhead::begin(const void* weight, std::span<const Place> starts) {
  if (previous_ != nullptr) next_[previous_].assign(starts.begin(), starts.end());
  previous_ = weight;
  const auto found = next_.find(weight);
  if (found == next_.end()) return;
  for (std::size_t i = 0; i < found->second.size(); ++i) {
    targets_[i].panel.store(found->second[i].panel, std::memory_order_relaxed);
    targets_[i].panel_bytes.store(found->second[i].panel_bytes, std::memory_order_relaxed);
    targets_[i].line.store(0, std::memory_order_release);
  }
}

bool ReadAhead::fetch(int thread) {
  Target& target = targets_[static_cast<std::size_t>(thread)];
  const std::int64_t first = target.line.load(std::memory_order_acquire);
  const std::uint8_t* const panel = target.panel.load(std::memory_order_relaxed);
  const std::int64_t panel_bytes = target.panel_bytes.load(std::memory_order_relaxed);
  const std::int64_t most = (kPanels * panel_bytes < kMostBytes ? kPanels * panel_bytes : kMostBytes) / kLineBytes;
  if (panel == nullptr || first >= most) return false;
  for (std::int64_t line = first; line < first + kLinesPerCall; ++line)
    __builtin_prefetch(panel + line % kPanels * panel_bytes + line / kPanels * kLineBytes);
  // The caller may have set a new target meanwhile; then this one is not counted.
  std::int64_t expected = first;
  target.line.compare_exchange_strong(expected, first + kLinesPerCall, std::memory_order_relaxed);
  return true;
}

}  // namespace espalier::cpu
