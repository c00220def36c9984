#include "base/utc_time.h"

namespace espalier {

std::string utc_text(UtcForm form, std::time_t moment) {
  std::tm parts{};
  ::gmtime_r(&moment, &parts);
  char text[sizeof "2026-11-15T23:59:59Z"];
  std::strftime(text, sizeof text, form == UtcForm::record ? "%Y-%m-%dT%H:%M:%SZ" : "%Y%m%dT%H%M%SZ", &parts);
  return text;
}

}  // namespace espalier
