// What the tests of reports share: runs on disk as `espalier eval run` leaves them, made of random turns, and a report
// of them in a folder of its own. The same seed gives the same run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "eval/turn_record.h"
#include "format/testing/temporary_folder.h"
#include "report/report.h"
#include "trace/traced_turn.h"

namespace espalier {

// A run whose turns are those of its trace, answered without speculation too. Every tenth answer is a single token,
// which has no round.
struct FakeRun {
  std::vector<TracedTurn> traced = {};
  std::vector<TurnRecord> turns = {};
};
FakeRun random_run(std::uint64_t seed, int turns);

// Manifest, turns and the trace of one rank.
void write_run(const std::filesystem::path& path, const FakeRun& run);

class ReportTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const FakeRun& run) const;
  Losslessness make_report(const std::vector<std::filesystem::path>& sources, const ReportOptions& options = {}) const;

  std::string page() const;
  nlohmann::json report() const;
  nlohmann::json table(const std::string& id) const;
  nlohmann::json figure(const std::string& id) const;

  TemporaryFolder folder_;
  std::filesystem::path out_ = folder_ / "report";
};

}  // namespace espalier
