// Runs side by side: their headline figures beside the paper's, with confidence intervals, and how turns are spread
// (EAGLE-Pangu, arXiv 2603.08088, Table 1 and Figures 1 to 3). Pure functions of turns and figures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "eval/turn_record.h"
#include "experiments/suite_file.h"
#include "report/report_section.h"

namespace espalier {

// Figures and turns are borrowed.
struct MeasuredRun {
  std::string label = {};
  const nlohmann::ordered_json& figures;  // run_figures()
  std::span<const TurnRecord> turns = {};
};

// Tables and charts whose ids begin with section.id.
void add_throughput(const std::vector<MeasuredRun>& runs, const std::vector<PaperTable>& paper, ReportSection& section);

}  // namespace espalier
