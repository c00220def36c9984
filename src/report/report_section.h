// A part of the report: some words, tables and charts. A value.
#pragma once

#include <string>
#include <vector>

#include "report/chart.h"
#include "report/report_table.h"

namespace espalier {

struct ReportSection {
  std::string id = {};  // a slug; those of its tables and charts begin with it
  std::string title = {};
  std::vector<std::string> words = {};     // a paragraph each
  std::vector<std::string> failures = {};  // what went wrong, said in red
  std::vector<Table> tables = {};
  std::vector<Chart> charts = {};

  // Charts that have a point; others are left out.
  void add(Chart chart) {
    if (!chart.empty()) charts.push_back(std::move(chart));
  }
};

}  // namespace espalier
