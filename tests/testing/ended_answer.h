// What an answer has left in the cache, read at its end, while it still holds its sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <vector>

#include "decode/request.h"
#include "device/device.h"
#include "testing/engine.h"

namespace espalier::testing {

struct EndedAnswer {
  bool ended = false;
  GenerateResult result = {};
  std::exception_ptr failure = {};
  std::int64_t length = 0;         // committed positions
  std::vector<std::byte> kv = {};  // of all of them
};

// The on_end of one request. What it fills must outlive the answer.
inline EndObserver keep_end(Device& device, EndedAnswer& kept) {
  return [&device, &kept](const AnswerEnd& end) {
    kept = {.ended = true, .result = end.result, .failure = end.failure};
    if (!end.sequence) return;
    kept.length = end.cache.length(*end.sequence);
    kept.kv = read_kv(device, end.cache, *end.sequence, kept.length);
  };
}

}  // namespace espalier::testing
