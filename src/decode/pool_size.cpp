#include "decode/pool_size.h"

#include <algorithm>

#include "base/error.h"
#include "decode/decoder_choices.h"

namespace espalier {

std::int64_t kv_position_bytes(const Transformer& model, DType kv_type, const Speculation& speculation) {
  std::int64_t bytes = slot_bytes(model.kv_shape(kv_type));
  for (const KvShape& shape : speculation.memories) bytes += slot_bytes(shape);
  return bytes;
}

PoolSize pool_of_bytes(const Transformer& model, const DecoderOptions& options, const Speculation& speculation,
                       std::int64_t bytes) {
  DecoderOptions whole = options;
  whole.cache_positions = 0;
  const DecoderChoices wanted = decoder_choices(model.config(), model.device(), whole, speculation);
  const std::int64_t block = KvShape{}.block_size;
  const std::int64_t position = kv_position_bytes(model, options.kv_type, speculation);
  PoolSize size{.positions = std::min(wanted.cache_positions, bytes / position / block * block)};
  size.context = std::min(wanted.context, context_of_pool(wanted, size.positions));
  if (size.context < 1) {
    const std::int64_t least = pool_of_context(wanted, 1);
    input_error("--kv-memory: expected {} bytes or more for {} positions, got {}", least * position, least, bytes);
  }
  return size;
}

}  // namespace espalier
