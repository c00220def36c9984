// A moment in UTC as text, for records and for the names of files.
#pragma once

#include <ctime>
#include <string>

namespace espalier {

enum class UtcForm {
  record,     // "2026-11-15T23:59:59Z"
  file_name,  // "20261115T235959Z"
};

// Both are ISO 8601, to the second, and sort as the moments do.
std::string utc_text(UtcForm form, std::time_t moment = std::time(nullptr));

}  // namespace espalier
