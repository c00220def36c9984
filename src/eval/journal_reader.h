// Which turns of a run are on disk, for rank 0, which asks again and again while others are timed: only a journal that
// has changed since is read. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "eval/file_state.h"
#include "eval/run_folder.h"

namespace espalier {

using TurnPlace = std::pair<std::int64_t, std::int64_t>;  // record and turn

class JournalReader {
 public:
  explicit JournalReader(RunFolder run) : run_(std::move(run)) {}

  // Those of all ranks there ever were. Throws InputError where a journal is damaged.
  const std::set<TurnPlace>& look();

 private:
  RunFolder run_;
  std::map<int, FileState> states_;  // of each rank's journal, when it was read last
  std::set<TurnPlace> turns_;
};

}  // namespace espalier
