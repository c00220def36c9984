// The part of a batch that answers those who watch it (batch_statistics.h).
#include "base/error.h"
#include "decode/answer.h"
#include "decode/batch.h"

namespace espalier {

BatchStatistics Batch::statistics() const {
  BatchStatistics statistics = statistics_;
  statistics.prefix_evictions = index_.counts().evictions;
  return statistics;
}

// What a strategy sets aside for its branches counts as held.
PoolCounts Batch::pool_counts() const {
  const BlockTables& tables = cache_.tables();
  PoolCounts counts{.free = cache_.free_positions() / cache_.block_size(),
                    .cached = tables.cached_blocks(),
                    .padding = std::ssize(tables.padding_blocks())};
  counts.held = tables.block_count() - counts.all();
  return counts;
}

std::vector<RunningAnswer> Batch::running_answers() const {
  std::vector<RunningAnswer> running;
  for (const auto& answer : answers_)
    if (answer->running()) running.push_back(running_answer(*answer));
  return running;
}

void Batch::check_conservation() const {
  cache_.check_conservation();
  const BlockTables& tables = cache_.tables();
  std::int64_t published = 0;
  for (std::int32_t block = 0; block < tables.block_count(); ++block) published += tables.published(block) ? 1 : 0;
  check(published == index_.size(), "batch: {} blocks are published, the index has {}", published, index_.size());
  for (const auto& answer : answers_) {
    check(answer->running() == answer->sequence.has_value(),
          "batch: answer {} runs without a sequence, or waits with one", answer->id);
    if (!answer->sequence) continue;
    const std::int64_t length = cache_.length(*answer->sequence);
    check(length == answer->length, "batch: answer {} has {} positions, its sequence {}", answer->id, answer->length,
          length);
  }
}

}  // namespace espalier
