// How many positions a KV memory of so many bytes holds, and how long a context it allows: for whoever gives bytes
// before there is a batch. Pure functions.
#pragma once

#include <cstdint>

#include "decode/decoder_options.h"
#include "model/transformer.h"

namespace espalier {

// K and V of one position in all memories of a batch: the teacher's and its drafters'.
std::int64_t kv_position_bytes(const Transformer& model, DType kv_type, const Speculation& speculation);

// Of its memory, that a device keeps for itself besides workspace and pool: what kernels pass on, recorded steps.
inline constexpr std::int64_t kDeviceOwnBytes = 256 << 20;

struct PoolMemory {
  std::int64_t bytes = 0;
  bool given = true;  // somebody asked for so many; false: it is what the machine has free
};

struct PoolSize {
  std::int64_t positions = 0;  // for DecoderOptions::cache_positions
  std::int64_t context = 0;    // for DecoderOptions::context: what was asked for, or what the pool holds beside the
                               // reserve that an answer is admitted for
};

// The pool of a batch with these options that takes up to `memory`, its padding included: no more than `parallel` whole
// contexts need, in whole blocks. options.cache_positions is not looked at. Where the pool has room for no position,
// throws with what one would need: InputError where the bytes were given, else DeviceError.
PoolSize pool_of_bytes(const Transformer& model, const DecoderOptions& options, const Speculation& speculation,
                       const PoolMemory& memory);

// What the pool may take of the bytes that are free in a device's own memory: not the workspace of these options, nor
// a tenth of the rest, which the device and the drafters use for themselves, nor less than kDeviceOwnBytes of it. May
// be negative.
std::int64_t pool_bytes_of_free(const Transformer& model, const DecoderOptions& options, const Speculation& speculation,
                                std::int64_t free);

}  // namespace espalier
