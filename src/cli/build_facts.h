// Which build this is, for records that must be told apart later.
#pragma once

#include <string_view>

namespace espalier {

std::string_view build_version();
// 40 hexadecimal digits, "-dirty" behind them where the sources had changes; empty where it is not known.
std::string_view build_commit();

}  // namespace espalier
