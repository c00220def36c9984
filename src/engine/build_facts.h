// Which build this is, for records that must be told apart later.
#pragma once

#include <string_view>

namespace espalier {

std::string_view build_version();
// 40 hexadecimal digits, "-dirty" behind them where the sources had changes; empty where it is not known.
std::string_view build_commit();
std::string_view build_compiler();  // "GNU 12.2.0"
std::string_view build_flags();     // of all files; kernels have some of their own

}  // namespace espalier
