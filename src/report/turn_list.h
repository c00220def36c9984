// All turns of all runs as one table. The first column is the number of a turn in the report, from 1.
#pragma once

#include <span>

#include "report/report_source.h"
#include "report/report_table.h"

namespace espalier {

Table turn_table(std::span<const ReportSource> sources);

}  // namespace espalier
