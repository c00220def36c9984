// The report as one HTML page that needs nothing from anywhere else: style and script are in it, and so is the data of
// as many turns as fit. A pure function of what it shows.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/losslessness.h"
#include "report/report_section.h"

namespace espalier {

// The names of the page's own parts; sections have others.
inline constexpr std::string_view kPageIds[] = {"runs",        "lossless",      "turns",
                                                "turns-title", "turn-view",     "turn-filter",
                                                "turn-count",  "configuration", "configuration-title"};

// What the list of turns knows besides the table's cells.
struct PageTurn {
  bool wrong = false;         // differs from its baseline, or could not be answered
  bool traced = false;        // its trees can be drawn
  std::string embedded = {};  // their data, as script_json(); empty: it lies in turns/N.js
};

struct Page {
  std::string title = {};
  Losslessness lossless = {};
  std::vector<std::string> words = {};     // below the title
  std::vector<std::string> failures = {};  // likewise, in red
  std::vector<ReportSection> sections = {};
  Table turns = {};
  std::vector<PageTurn> marks = {};  // as many as there are turns
  Table configuration = {};
  std::vector<std::pair<std::string, std::string>> manifests = {};  // label and JSON, indented
};

std::string page_html(const Page& page);

}  // namespace espalier
