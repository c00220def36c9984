// The style sheets and the script of the report, which lie beside this header as files of their own (CMakeLists.txt).
#pragma once

#include <string_view>

namespace espalier {

extern const std::string_view kChartStyle;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

}  // namespace espalier
