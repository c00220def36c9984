// The directory of a run (docs/eval.md). While a run goes on it holds manifest.json and the finished turns, one line
// each, in turns.partial.jsonl; at the end turns.json and summary.json take the place of the latter. A process that is
// killed at any point leaves a directory that open() can go on with: it loses at most the turn in flight. One process
// at a time: the second is refused. Movable, not copyable.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
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
  // That of an earlier run. Throws InputError when it is none, when another process is writing to it, or when the run
  // was another one: `schema`, `version`, `commit` and `configuration` of both manifests must be equal, and the message
  // names the first field that is not.
  static RunFolder open(const std::filesystem::path& path, const nlohmann::ordered_json& manifest);

  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  nlohmann::ordered_json manifest() const;
  void write_manifest(const nlohmann::ordered_json& manifest) const;

  // The finished turns, in the order they were added.
  const std::vector<TurnRecord>& turns() const { return turns_; }
  bool finished() const { return journal_ < 0; }

  // The turn is on disk when this returns. Throws DeviceError, and then the directory is as it was. Requires a run that
  // is not finished.
  void add(TurnRecord turn);
  // Writes turns.json, summary.json and the manifest; nothing can be added afterwards.
  void finish(const nlohmann::ordered_json& manifest, const Summary& summary);

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  void open_journal();
  void read_journal();
  void close_journal();
  std::filesystem::path journal_path() const;

  std::filesystem::path path_;
  std::vector<TurnRecord> turns_;
  int journal_ = -1;
};

}  // namespace espalier
