#include "decode/pool_size.h"

#include <algorithm>

#include "base/error.h"
#include "decode/decoder_choices.h"

namespace espalier {

namespace {

DecoderChoices wanted_choices(const Transformer& model, const DecoderOptions& options, const Speculation& speculation) {
  DecoderOptions whole = options;
  whole.cache_positions = 0;
  return decoder_choices(model.config(), model.device(), whole, speculation);
}

}  // namespace

std::int64_t kv_position_bytes(const Transformer& model, DType kv_type, const Speculation& speculation) {
  std::int64_t bytes = slot_bytes(model.kv_shape(kv_type));
  for (const KvShape& shape : speculation.memories) bytes += slot_bytes(shape);
  return bytes;
}

PoolSize pool_of_bytes(const Transformer& model, const DecoderOptions& options, const Speculation& speculation,
                       const PoolMemory& memory) {
  const DecoderChoices wanted = wanted_choices(model, options, speculation);
  const std::int64_t block = KvShape{}.block_size;
  const std::int64_t position = kv_position_bytes(model, options.kv_type, speculation);
  const std::int64_t slots = memory.bytes / position - wanted.padding_slots;
  PoolSize size{.positions = std::min(wanted.cache_positions, slots / block * block)};
  size.context = std::min(wanted.context, context_of_pool(wanted, size.positions));
  if (size.context < 1) {
    const std::int64_t least = wanted.padding_slots + pool_of_context(wanted, 1);
    if (memory.given)
      input_error("--kv-memory: expected {} bytes or more for {} positions, got {}", least * position, least,
                  memory.bytes);
    device_error(
        "not enough memory for keys and values: {} bytes are needed for {} positions, {} are free; --kv-memory sets "
        "the "
        "size",
        least * position, least, std::max<std::int64_t>(memory.bytes, 0));
  }
  return size;
}

std::int64_t pool_bytes_of_free(const Transformer& model, const DecoderOptions& options, const Speculation& speculation,
                                std::int64_t free) {
  const DecoderChoices wanted = wanted_choices(model, options, speculation);
  const std::int64_t left =
      free - workspace_bytes(model.config(),
                             {.rows = wanted.step_rows, .outputs = wanted.logit_rows, .positions = wanted.context});
  return left - std::max(left / 10, kDeviceOwnBytes);
}

}  // namespace espalier
