// One rank's eye on others that it waits for, and it says who is lost when they do not deliver: rank 0 waits for the
// turns of all, in a suite the others wait for what rank 0 decides. A rank is lost when it said so itself, when its
// process is gone (on this host), or when it has shown no sign of life for too long; it shows life when its rank.json
// or its journal changes. One thread at a time.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "eval/file_state.h"

namespace espalier {

class RankWatch {
 public:
  // Before any rank has been waited for. A rank that had ended by now is of an earlier launch, and may come again.
  // `ranks`: the folder of all, `world` how many there are.
  RankWatch(std::filesystem::path ranks, int world, double seconds);

  // Returns true once `unfinished`, which is asked again and again, names no rank; false when it was cancelled. Throws
  // DeviceError when all ranks that it names are lost, and says why of each: "DIR: turns are missing: rank 2: ...".
  bool wait(const std::function<std::vector<int>()>& unfinished, const std::function<bool()>& cancelled,
            std::string_view missing = "turns");

  // Whether the rank has shown life since this watch began, and so is of the same launch.
  bool has_come(int rank);
  // Waits for that, for at most so many seconds; whether it has come.
  bool await(int rank, double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  struct Signs {
    FileState life = {};
    FileState journal = {};
    Clock::time_point seen = Clock::now();  // the last change
    bool ended_before = false;              // the life that is there is of an earlier launch
    bool changed = false;                   // since the watch began
  };

  std::filesystem::path path_of(int rank) const;
  void look(int rank);
  std::string loss_of(int rank);

  std::filesystem::path ranks_;
  double seconds_;
  std::map<int, Signs> signs_;
};

// Returns once every rank below `world` that has signed in to the folder `ranks` has ended too; after `seconds` in any
// case.
void await_ends(const std::filesystem::path& ranks, int world, double seconds);

// Before anybody has signed in: returns true once rank 0 has made the file, false when it was cancelled. Throws
// DeviceError after `seconds` without it.
bool await_rank_0(const std::filesystem::path& file, double seconds, const std::function<bool()>& cancelled);

}  // namespace espalier
