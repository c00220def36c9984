#include "eval/rank_watch.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "eval/process_life.h"
#include "eval/rank_folder.h"

namespace espalier {
namespace {

constexpr auto kFirstPause = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);

// Why nothing is to be expected of a rank any more; empty while something is.
std::string end_of(const std::filesystem::path& rank) {
  const std::filesystem::path file = rank / kLifeName;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return "";
  const nlohmann::json life = parse_json(read_text_file(file), file.string());
  if (!life.is_object()) return "";
  const auto at = [&](const char* name) { return life.value(name, nlohmann::json()); };
  if (at("failure").is_string()) return at("failure").get<std::string>();
  if (at("ended") == true) return "it has ended";
  return has_ended(at("process")) ? fmt::format("process {} is gone", at("process").value("pid", 0)) : "";
}

}  // namespace

RankWatch::RankWatch(std::filesystem::path ranks, int world, double seconds)
    : ranks_(std::move(ranks)), seconds_(seconds) {
  for (int rank = 0; rank < world; ++rank) {
    look(rank);
    signs_[rank].ended_before = !end_of(path_of(rank)).empty();
  }
}

std::filesystem::path RankWatch::path_of(int rank) const {
  return ranks_ / fmt::format("{:04}", rank);
}

RankWatch::FileState RankWatch::state_of(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_ino), status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

void RankWatch::look(int rank) {
  Signs& signs = signs_[rank];
  const FileState life = state_of(path_of(rank) / kLifeName), journal = state_of(path_of(rank) / kJournalName);
  if (life == signs.life && journal == signs.journal) return;
  if (life != signs.life) signs.ended_before = false;
  signs.life = life;
  signs.journal = journal;
  signs.seen = Clock::now();
}

// "rank 2: process 17 is gone"; empty while there is hope.
std::string RankWatch::loss_of(int rank) {
  look(rank);
  const Signs& signs = signs_[rank];
  if (const std::string end = end_of(path_of(rank)); !end.empty() && !signs.ended_before)
    return fmt::format("rank {}: {}", rank, end);
  if (std::chrono::duration<double>(Clock::now() - signs.seen).count() <= seconds_) return "";
  return fmt::format("rank {}: no sign of life for {:g} s", rank, seconds_);
}

bool RankWatch::wait(const std::function<std::vector<int>()>& unfinished, const std::function<bool()>& cancelled) {
  for (auto& [rank, signs] : signs_) signs.seen = Clock::now();  // only from now on somebody waits
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    if (cancelled && cancelled()) return false;
    // First who is lost, then what is missing: a rank may have ended well in between.
    std::map<int, std::string> losses;
    for (const auto& [rank, signs] : signs_)
      if (std::string loss = loss_of(rank); !loss.empty()) losses[rank] = std::move(loss);
    std::vector<std::string> lost;
    const std::vector<int> missing = unfinished();
    if (missing.empty()) return true;
    for (int rank : missing)
      if (losses.contains(rank)) lost.push_back(losses[rank]);
    if (lost.size() == missing.size())
      device_error("{}: turns are missing: {}; --resume finishes them", ranks_.parent_path().string(),
                   fmt::join(lost, "; "));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace espalier
