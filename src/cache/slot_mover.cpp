#include "cache/slot_mover.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {
namespace {

// Calls of up to `call` pairs for `longest` of them, each with two lists.
std::int64_t entries_for(const Device& device, std::int64_t longest, std::int64_t call) {
  return (longest + call - 1) / call * 2 * part_elements(device, bucket_for(device, call));
}

}  // namespace

SlotMover::SlotMover(Device& device, std::int64_t longest)
    : device_(&device),
      longest_call_(largest_step(device, longest)),
      lists_(device.tensor(DType::i32, {entries_for(device, longest, longest_call_)})) {
  host_.reserve(static_cast<std::size_t>(lists_.view.elements()));
}

void SlotMover::move(const SlotMoves& moves, std::span<const KvViews> layers, std::int64_t& done) {
  if (moves.size() == 0) return;
  const std::vector<Call> calls = pack(moves);
  const auto entries = static_cast<std::int64_t>(host_.size());
  check(entries <= lists_.view.elements(), "SlotMover: {} slots to move, more than it was made for", moves.size());
  upload<std::int32_t>(*device_, host_, lists_.view.rows(0, entries));
  for (; done < std::ssize(calls); ++done) {
    const Call& call = calls[static_cast<std::size_t>(done)];
    device_->kv_copy(layers, lists_.view.rows(call.from, call.count), lists_.view.rows(call.to, call.count));
  }
}

std::vector<SlotMover::Call> SlotMover::pack(const SlotMoves& moves) {
  host_.clear();
  std::vector<Call> calls;
  for (std::int64_t begin = 0; begin < moves.size(); begin += longest_call_) {
    const auto count = static_cast<std::size_t>(std::min(longest_call_, moves.size() - begin));
    Call call{.count = bucket_for(*device_, static_cast<std::int64_t>(count))};
    call.from = append(std::span(moves.from).subspan(static_cast<std::size_t>(begin), count), call.count, true);
    call.to = append(std::span(moves.to).subspan(static_cast<std::size_t>(begin), count), call.count, false);
    calls.push_back(call);
  }
  return calls;
}

// Appends a list filled up to `count` entries, with its first slot or with padding slots, and returns where it starts.
std::int64_t SlotMover::append(std::span<const std::int32_t> slots, std::int64_t count, bool repeat_first) {
  const auto start = static_cast<std::int64_t>(host_.size());
  host_.insert(host_.end(), slots.begin(), slots.end());
  for (std::int32_t i = 0; static_cast<std::int64_t>(host_.size()) < start + count; ++i)
    host_.push_back(repeat_first ? slots[0] : i);
  host_.resize(static_cast<std::size_t>(start + part_elements(*device_, count)));
  return start;
}

}  // namespace espalier
