// The judge of decoding: too simple to be wrong, too slow to be used. For every token a fresh pool and one whole
// prefill; no reuse, no tree, and nothing of decode/ but the sampler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "decode/sampler.h"
#include "model/transformer.h"

namespace espalier::testing {

struct JudgedRequest {
  std::vector<std::int32_t> prompt;
  SamplingOptions sampling = {};
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 0;
  std::vector<std::int32_t> stop_tokens = {};
  std::int64_t min_tokens = 0;  // before so many none of them can be drawn
  // Whether the answer so far ends the text, as a stop string would.
  std::function<bool(std::span<const std::int32_t>)> complete = {};
  std::int64_t context = 0;
  DType kv_type = DType::f16;
};

struct Verdict {
  std::vector<std::int32_t> tokens;  // the answer
  std::string finish;                // "stop", "length" or "context"
  std::vector<std::byte> kv;         // of a fresh prefill of everything but the last token
};

Verdict judge(const Transformer& model, const JudgedRequest& request);

}  // namespace espalier::testing
