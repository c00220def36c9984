#include "cache/slot_census.h"

#include <string_view>

#include "base/error.h"

namespace espalier {
namespace {

std::string_view use_name(SlotUse use) {
  switch (use) {
    case SlotUse::none: return "unused";
    case SlotUse::free: return "free";
    case SlotUse::cached: return "cached";
    case SlotUse::held: return "held";
    case SlotUse::speculative: return "speculative";
    case SlotUse::padding: return "padding";
  }
  return "?";
}

}  // namespace

void SlotCensus::claim(std::span<const std::int32_t> table, std::int64_t begin, std::int64_t end, SlotUse use) {
  const std::int64_t positions = static_cast<std::int64_t>(table.size()) * block_size_;
  check(begin >= 0 && begin <= end && end <= positions, "KV slots: positions [{}, {}) of a table for {}", begin, end,
        positions);
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t slot = table[static_cast<std::size_t>(p / block_size_)] * block_size_ + p % block_size_;
    check(slot >= 0 && slot < static_cast<std::int64_t>(uses_.size()), "KV slots: slot {} of {}", slot, uses_.size());
    SlotUse& known = uses_[static_cast<std::size_t>(slot)];
    check(known == SlotUse::none || (known == SlotUse::held && use == SlotUse::held), "KV slots: slot {} is {} and {}",
          slot, use_name(known), use_name(use));
    known = use;
  }
}

void SlotCensus::claim(std::span<const std::int32_t> table, SlotUse use) {
  claim(table, 0, static_cast<std::int64_t>(table.size()) * block_size_, use);
}

void SlotCensus::fill(std::span<const std::int32_t> blocks, SlotUse use) {
  for (std::int32_t block : blocks)
    for (std::int64_t slot = block * block_size_; slot < (block + 1) * block_size_; ++slot) {
      SlotUse& known = uses_[static_cast<std::size_t>(slot)];
      if (known == SlotUse::none) known = use;
    }
}

void SlotCensus::check_complete() const {
  for (std::size_t slot = 0; slot < uses_.size(); ++slot)
    check(uses_[slot] != SlotUse::none, "KV slots: slot {} is lost: nobody owns it and it is not free", slot);
}

}  // namespace espalier
