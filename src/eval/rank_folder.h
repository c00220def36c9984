// The files of one rank, ranks/NNNN in the directory of a run: rank.json, which says who writes here and how it ended,
// and the journal of its finished turns. Its process is the only writer; others read. Movable, not copyable.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "eval/launcher.h"
#include "eval/turn_journal.h"

namespace espalier {

inline constexpr const char* kJournalName = "turns.jsonl";
inline constexpr const char* kLifeName = "rank.json";

std::string rank_folder_name(int rank);                    // "0002"
std::optional<int> rank_of_folder(std::string_view name);  // nothing: it is no rank's

class RankFolder {
 public:
  // Signs in: from now on this process is the rank. `resume`: there may be a folder already. `facts` join rank.json.
  // Throws InputError when there is one and may not be, or when another process is writing to it.
  RankFolder(const std::filesystem::path& path, const RankPlace& place, bool resume);
  RankFolder(const std::filesystem::path& path, const RankPlace& place, bool resume,
             const nlohmann::ordered_json& facts);

  const std::filesystem::path& path() const { return path_; }
  void add(const TurnRecord& turn) { journal_.add(turn); }
  // Touches rank.json: a sign of life where no turns show it.
  void show_life() const;
  // Signs out: it has done its share, or why not. `facts` join rank.json.
  void end();
  void end(const nlohmann::ordered_json& facts);
  void fail(const std::string& reason);

 private:
  void write(const nlohmann::ordered_json& life);

  std::filesystem::path path_;
  std::string life_;  // the text of rank.json
  TurnJournal journal_;
};

}  // namespace espalier
