#include "eval/rank_watch.h"

#include <fmt/ranges.h>

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

constexpr auto kFirstWatchPause = std::chrono::milliseconds(20);
constexpr auto kLongestWatchPause = std::chrono::milliseconds(1000);
constexpr auto kPoll = std::chrono::milliseconds(50);

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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
    signs_[rank].changed = false;
  }
}

std::filesystem::path RankWatch::path_of(int rank) const {
  return ranks_ / rank_folder_name(rank);
}

void RankWatch::look(int rank) {
  Signs& signs = signs_[rank];
  const FileState life = state_of(path_of(rank) / kLifeName), journal = state_of(path_of(rank) / kJournalName);
  if (life == signs.life && journal == signs.journal) return;
  if (life != signs.life) signs.ended_before = false;
  signs.life = life;
  signs.journal = journal;
  signs.seen = Clock::now();
  signs.changed = true;
}

bool RankWatch::has_come(int rank) {
  look(rank);
  return signs_[rank].changed;
}

// "rank 2: process 17 is gone"; empty while there is hope.
std::string RankWatch::loss_of(int rank) {
  look(rank);
  const Signs& signs = signs_[rank];
  if (const std::string end = end_of(path_of(rank)); !end.empty() && !signs.ended_before)
    return fmt::format("rank {}: {}", rank, end);
  if (seconds_since(signs.seen) <= seconds_) return "";
  return fmt::format("rank {}: no sign of life for {:g} s", rank, seconds_);
}

bool RankWatch::wait(const std::function<std::vector<int>()>& unfinished, const std::function<bool()>& cancelled,
                     std::string_view missing) {
  for (auto& [rank, signs] : signs_) signs.seen = Clock::now();  // only from now on somebody waits
  for (auto pause = kFirstWatchPause;; pause = std::min(2 * pause, kLongestWatchPause)) {
    if (cancelled && cancelled()) return false;
    // First who is lost, then what is missing: a rank may have ended well in between.
    std::map<int, std::string> losses;
    for (const auto& [rank, signs] : signs_)
      if (std::string loss = loss_of(rank); !loss.empty()) losses[rank] = std::move(loss);
    std::vector<std::string> lost;
    const std::vector<int> ranks = unfinished();
    if (ranks.empty()) return true;
    for (int rank : ranks)
      if (losses.contains(rank)) lost.push_back(losses[rank]);
    if (lost.size() == ranks.size())
      device_error("{}: {} are missing: {}; --resume finishes them", ranks_.parent_path().string(), missing,
                   fmt::join(lost, "; "));
    std::this_thread::sleep_for(pause);
  }
}

bool RankWatch::await(int rank, double seconds) {
  const auto start = Clock::now();
  while (!has_come(rank)) {
    if (seconds_since(start) > seconds) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

void await_ends(const std::filesystem::path& ranks, int world, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < world; ++rank) {
    const std::filesystem::path folder = ranks / rank_folder_name(rank);
    while (std::filesystem::exists(folder / kLifeName) && end_of(folder).empty() && seconds_since(start) <= seconds)
      std::this_thread::sleep_for(kFirstWatchPause);
  }
}

bool await_rank_0(const std::filesystem::path& file, double seconds, const std::function<bool()>& cancelled) {
  const auto start = std::chrono::steady_clock::now();
  while (!std::filesystem::exists(file)) {
    if (cancelled && cancelled()) return false;
    if (seconds_since(start) > seconds)
      device_error("{}: rank 0 has not created it within {:g} s", file.parent_path().string(), seconds);
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

}  // namespace espalier
