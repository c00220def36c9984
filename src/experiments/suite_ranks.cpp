#include "experiments/suite_ranks.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {
namespace {

constexpr auto kBetweenSigns = std::chrono::milliseconds(500);

}  // namespace

SuiteRanks::SuiteRanks(const EvalRequest& request, const RankPlace& place, int threads,
                       std::function<bool()> interrupted)
    : place_(place), interrupted_(std::move(interrupted)) {
  if (place.world == 1) return;
  const std::filesystem::path ranks = std::filesystem::path(request.out) / "ranks";
  watch_.emplace(ranks, place.world, request.rank_timeout);  // first: what others do once this rank is there, it sees
  folder_.emplace(ranks / rank_folder_name(place.rank), place, request.resume, rank_start(threads));
}

void SuiteRanks::perform(const std::function<bool()>& part) {
  if (!folder_) {
    part();
    return;
  }
  try {
    part() ? folder_->end(rank_end({})) : folder_->fail("interrupted");
  } catch (const std::exception& error) {
    try {
      folder_->fail(error.what());
    } catch (const DeviceError&) {  // the disk may be what failed
    }
    throw;
  }
}

bool SuiteRanks::cancelled() {
  const auto now = std::chrono::steady_clock::now();
  if (folder_ && now - shown_ >= kBetweenSigns) {
    folder_->show_life();
    shown_ = now;
  }
  return interrupted_();
}

bool SuiteRanks::wait(const std::function<std::vector<int>()>& absent) {
  return watch_->wait(
      absent, [this] { return cancelled(); }, "results");
}

// Nobody goes on before it was seen: rank 0 waits for a change of every other rank's file, each of them for one of rank
// 0's, and both touch their own until then and once more. What is left of an earlier launch does not change.
bool SuiteRanks::meet() {
  if (!watch_) return true;
  const bool met = wait([this] {
    std::vector<int> absent;
    for (int rank = 0; rank < (leads() ? place_.world : 1); ++rank)
      if (rank != place_.rank && !watch_->has_come(rank)) absent.push_back(rank);
    return absent;
  });
  folder_->show_life();  // those whom this rank has just seen look from before they came
  return met;
}

bool SuiteRanks::await(const std::function<bool()>& ready) {
  check(watch_ && !leads(), "rank {} of {} waits for rank 0", place_.rank, place_.world);
  return wait([&] { return ready() ? std::vector<int>{} : std::vector<int>{0}; });
}

}  // namespace espalier
