// `espalier eval report`: runs and suites become a page with tables, figures and trees, and files of each of them
// (docs/report.md).
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/suite_file.h"
#include "report/losslessness.h"
#include "report/report_folder.h"
#include "report/report_source.h"
#include "report/turn_data.h"

namespace espalier {

struct ReportOptions {
  std::vector<PaperTable> paper = {};  // stands beside runs that belong to no suite
  // How the ids of a run are shown, by its manifest's configuration.
  std::function<TokenWords(const nlohmann::ordered_json& configuration)> words = [](const nlohmann::ordered_json&) {
    return TokenWords{};
  };
  std::size_t embedded_bytes = 1'500'000;  // of trees in the page; those of further turns lie in files beside it
};

// Writes everything into the folder, which the caller publishes. Throws InputError where a trace or a result cannot be
// read.
Losslessness write_report(const std::vector<ReportSource>& sources, const ReportOptions& options,
                          const ReportFolder& folder);

}  // namespace espalier
