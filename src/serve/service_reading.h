// What the engine thread last said of itself: a copy that others may look at without touching it. Plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/batch_statistics.h"
#include "serve/protocol/server_objects.h"

namespace espalier {

struct ServiceReading {
  BatchStatistics statistics = {};
  PoolCounts pool = {};
  std::vector<SlotFacts> slots = {};  // one for each answer that may run at once
  std::int64_t running = 0;           // requests that were admitted
  std::int64_t waiting = 0;           // requests that were not
};

}  // namespace espalier
