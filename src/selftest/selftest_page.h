// A selftest as one HTML page that needs nothing from anywhere else, with the JSON object in it. Pure.
#pragma once

#include <string>

#include "selftest/selftest_report.h"

namespace espalier {

std::string selftest_page(const SelftestReport& report);

}  // namespace espalier
