// Copies slots of KV memory, in all layers, by two lists of slots. The lists travel to the device once, in one upload.
//
// A list is one call of Device::kv_copy for all layers. On a device with row buckets it is cut into calls of the
// largest bucket, and the last one is filled up to a bucket with pairs that copy the first slot of the call into
// padding slots. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace espalier {

struct SlotMoves {
  std::vector<std::int32_t> from;
  std::vector<std::int32_t> to;  // pairwise distinct

  void add(std::int32_t source, std::int32_t target) {
    from.push_back(source);
    to.push_back(target);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(from.size()); }
};

class SlotMover {
 public:
  // Lists of up to `longest` pairs. On a device with row buckets, slots [0, largest bucket) are for padding. The device
  // must outlive the mover.
  SlotMover(Device& device, std::int64_t longest);

  // A call reads all its slots before it writes, but a later call reads what an earlier one wrote: no target may be the
  // source of a later pair.
  // `done` calls have taken effect; it grows with each. When one throws, the same lists
  // with the same `done` go on where they stopped: a call that throws is taken to have written nothing.
  void move(const SlotMoves& moves, std::span<const KvViews> layers, std::int64_t& done);

 private:
  // One call of kv_copy: where its lists lie in lists_.
  struct Call {
    std::int64_t from = 0;
    std::int64_t to = 0;
    std::int64_t count = 0;
  };
  std::vector<Call> pack(const SlotMoves& moves);
  std::int64_t append(std::span<const std::int32_t> slots, std::int64_t count, bool repeat_first);

  Device* device_;
  std::int64_t longest_call_;
  Tensor lists_;                    // i32, all lists of a move
  std::vector<std::int32_t> host_;  // what goes into it
};

}  // namespace espalier
