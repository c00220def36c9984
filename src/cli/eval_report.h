// `espalier eval report RUN... -o DIR`: a page with tables, figures and trees of runs and suites (docs/report.md).
#pragma once

#include <string>
#include <vector>

#include "report/report.h"

namespace CLI {
class App;
}

namespace espalier {

struct ReportFlags {
  std::vector<std::string> runs = {};
  std::string out = {};
  std::string model = {};  // whose tokenizer gives the words; empty: the runs' own
  bool force = false;
  std::size_t embed = ReportOptions{}.embedded_bytes;
};

void add_report_flags(CLI::App& app, ReportFlags& flags);

// The exit code is 1 where turns differ, as that of the runs was.
int run_report(const ReportFlags& flags);

}  // namespace espalier
