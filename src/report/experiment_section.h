// An experiment of one or several suites as a part of the report: settings side by side, beside what the papers
// printed. A pure function of what was read.
#pragma once

#include <span>
#include <string>

#include "report/report_section.h"
#include "report/report_source.h"

namespace espalier {

// The experiment in all sources that have it; `section_id` is a slug. Throws InputError where figures are not what its
// kind has.
ReportSection experiment_section(const std::string& id, const std::string& section_id,
                                 std::span<const ReportSource> sources);

}  // namespace espalier
