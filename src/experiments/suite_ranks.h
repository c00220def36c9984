// The processes that run a suite together. All of them walk through the same experiments. Each answers its share of
// every run; rank 0, which alone owns the directory, merges them, does what cannot be shared, and decides which runs
// there are. In DIR/ranks every rank says that it is there, and touches its file while it works or waits, so that
// whoever waits for it learns when it is lost. A process that is alone leaves nothing there. One thread at a time.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "eval/manifest.h"
#include "eval/rank_folder.h"
#include "eval/rank_watch.h"

namespace espalier {

class SuiteRanks {
 public:
  // Signs in to the suite in request.out, whose suite.json is there. Throws InputError when another process is this
  // rank.
  SuiteRanks(const EvalRequest& request, const RankPlace& place, int threads, std::function<bool()> interrupted);
  SuiteRanks(const SuiteRanks&) = delete;
  SuiteRanks& operator=(const SuiteRanks&) = delete;

  const RankPlace& place() const { return place_; }
  bool leads() const { return place_.rank == 0; }
  RankWatch* watch() { return watch_ ? &*watch_ : nullptr; }  // for runs; null: this process is alone

  // Does this rank's part, and says in its place how that ended: well, interrupted (nothing), or with which exception.
  template <typename Outcome>
  std::optional<Outcome> run(const std::function<std::optional<Outcome>()>& part) {
    std::optional<Outcome> outcome;
    perform([&] {
      outcome = part();
      return outcome.has_value();
    });
    return outcome;
  }

  // Whether to stop. Who works long asks often: the others take it for a sign of life.
  bool cancelled();

  // Returns true once all ranks of this launch are there; of the others, once rank 0 is. False: cancelled. Throws
  // DeviceError with the names of those that do not come.
  bool meet();
  // Of another rank than the first: returns true once `ready`, which is asked again and again. False: cancelled. Throws
  // DeviceError when rank 0 is lost.
  bool await(const std::function<bool()>& ready);

 private:
  void perform(const std::function<bool()>& part);
  bool wait(const std::function<std::vector<int>()>& absent);

  RankPlace place_;
  std::function<bool()> interrupted_;
  std::optional<RankWatch> watch_;
  std::optional<RankFolder> folder_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

}  // namespace espalier
