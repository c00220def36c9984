// Rank 0's eye on the others: it waits until their turns are there, and says who is lost when they do not come. A rank
// is lost when it said so itself, when its process is gone (on this host), or when it has shown no sign of life for too
// long; it shows life when its rank.json or its journal changes. One thread at a time.
#pragma once

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace espalier {

class RankWatch {
 public:
  // Before any rank has been waited for. A rank that had ended by now is of an earlier launch, and may come again.
  // `ranks`: the folder of all, `world` how many there are.
  RankWatch(std::filesystem::path ranks, int world, double seconds);

  // Returns true once `unfinished`, which is asked again and again, names no rank; false when it was cancelled. Throws
  // DeviceError when all ranks that it names are lost, and says why of each.
  bool wait(const std::function<std::vector<int>()>& unfinished, const std::function<bool()>& cancelled);

 private:
  // Changes with every write to a file. The clock of the host that wrote has no say in it.
  using FileState = std::array<std::int64_t, 4>;
  using Clock = std::chrono::steady_clock;
  struct Signs {
    FileState life = {};
    FileState journal = {};
    Clock::time_point seen = Clock::now();  // the last change
    bool ended_before = false;              // the life that is there is of an earlier launch
  };

  static FileState state_of(const std::filesystem::path& file);
  std::filesystem::path path_of(int rank) const;
  void look(int rank);
  std::string loss_of(int rank);

  std::filesystem::path ranks_;
  double seconds_;
  std::map<int, Signs> signs_;
};

}  // namespace espalier
