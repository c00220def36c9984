// The directory of a run (docs/eval.md). While a run goes on it holds manifest.json and, for each rank, a folder
// ranks/NNNN with its finished turns; at the end turns.json, turns.csv and summary.json join them, and the manifest
// says so. Processes that are killed at any point leave a directory that open() can go on with: each loses at most the
// turn in flight. Whoever writes a file is its only writer: the whole run's files are rank 0's.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/summary.h"
#include "eval/turn_record.h"

namespace espalier {

class RunFolder {
 public:
  // A new one; it appears with its manifest, or not at all. Throws InputError when there is something at `path`
  // already, DeviceError when the disk does not take it.
  static RunFolder create(const std::filesystem::path& path, const nlohmann::ordered_json& manifest);
  // That of an earlier run, for rank 0. Throws InputError when it is none, or when the run was another one: `schema`,
  // `version`, `commit`, `program`, `compiler` and `configuration` of both manifests must be equal, and the message
  // names the first field that is not. Why those drafters were chosen does not count, nor does the number of threads
  // where `world` is another one.
  static RunFolder open(const std::filesystem::path& path, const nlohmann::ordered_json& manifest);
  // That which rank 0 of the same launch goes on with, for the others. The same as open(), but each rank has threads of
  // its own, as its host has cores.
  static RunFolder follow(const std::filesystem::path& path, const nlohmann::ordered_json& manifest);
  // That which rank 0 of the same launch creates, once it is there. Throws InputError like follow(), and when it is of
  // another launch; DeviceError after `seconds` without it. Nothing when it was cancelled.
  static std::optional<RunFolder> join(const std::filesystem::path& path, const nlohmann::ordered_json& manifest,
                                       double seconds, const std::function<bool()>& cancelled);

  const std::filesystem::path& path() const { return path_; }
  nlohmann::ordered_json manifest() const;
  void write_manifest(const nlohmann::ordered_json& manifest) const;
  bool finished() const;  // as the manifest says
  std::filesystem::path rank_path(int rank) const;
  std::vector<int> ranks() const;  // all there ever were, in ascending order

  // Throws InputError while a process still writes as a rank of an earlier launch that one of `world` ranks does not
  // have.
  void check_retired(int world) const;

  // The finished turns of all ranks there ever were, by record and turn; of a turn that several answered, that of the
  // lowest rank. Throws InputError when they answered it differently.
  std::vector<TurnRecord> turns() const;
  // Writes turns.json, turns.csv, summary.json and, last of all, the manifest.
  void finish(const nlohmann::ordered_json& manifest, const std::vector<TurnRecord>& turns,
              const Summary& summary) const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::optional<std::string> first_other(nlohmann::ordered_json now, bool same_threads) const;

  std::filesystem::path path_;
};

// manifest.json of a run. Throws InputError when there is none.
nlohmann::ordered_json read_manifest(const std::filesystem::path& run);
// Throws InputError naming both numbers where the manifest of `run` has another arithmetic than this program.
void check_arithmetic_of_run(const std::filesystem::path& run, const nlohmann::ordered_json& manifest);
// turns.json of a finished run. Throws InputError when it is none.
std::vector<TurnRecord> read_finished_turns(const std::filesystem::path& run);

// The first field in which two objects differ, named from the outside in: "configuration.sampling.seed is "1", expected
// "0"". Nothing when they are equal.
std::optional<std::string> first_other_field(const nlohmann::ordered_json& now, const nlohmann::ordered_json& then,
                                             const std::string& field);

}  // namespace espalier
