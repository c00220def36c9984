// Step times of earlier runs (decode/step_times.h), one small JSON file for each model and way to compute, in the
// user's cache folder. A file that is missing, damaged or of another machine or build is as good as none; one that
// cannot be written is no error either: the next run measures again.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "decode/step_times.h"
#include "engine/engine.h"

namespace espalier {

// What step times depend on. Times are of no use under another key.
struct StepTimesKey {
  // Names the file: several of these live side by side.
  std::map<std::string, std::string> way = {};  // model, device, isa, threads, ...
  // Written into it: when one of these changes, the file is replaced.
  std::map<std::string, std::string> machine = {};  // cpu, cores, build
};

// taps: the drafters read the teacher's layers. rows: the most of a step.
StepTimesKey step_times_key(const OpenEngine& engine, bool taps, std::int64_t rows);

class StepTimesFile {
 public:
  StepTimesFile(std::filesystem::path folder, StepTimesKey key);

  const std::filesystem::path& path() const { return path_; }
  std::optional<StepTimes> load() const;
  // Whole or not at all: written under another name, then renamed. False: it could not be.
  bool save(const StepTimes& times) const;

 private:
  StepTimesKey key_;
  std::filesystem::path path_;
};

}  // namespace espalier
