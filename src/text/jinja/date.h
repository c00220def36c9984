// The date a template may ask for with strftime_now(). It is handed in: libraries do not read the clock.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/guard.h"

namespace espalier::jinja {

struct Date {
  int year = 1970, month = 1, day = 1;
  int hour = 0, minute = 0, second = 0;
};

// "2024-07-26" or "2024-07-26T13:05:00". Throws InputError on anything else.
Date parse_date(std::string_view iso);

// Python's strftime with English names, for %a %A %b %B %d %e %H %I %j %m %M %p %S %y %Y and %%; "-" after the percent
// sign drops the padding. Fails on other directives.
std::string format_date(Guard& guard, const Date& date, std::string_view format);

}  // namespace espalier::jinja
