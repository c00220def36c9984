#include "text/jinja/date.h"

#include <array>
#include <chrono>
#include <optional>

namespace espalier::jinja {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};
constexpr std::array<std::string_view, 7> kWeekdays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                       "Thursday", "Friday", "Saturday"};

std::chrono::year_month_day calendar(const Date& date) {
  return std::chrono::year(date.year) / date.month / date.day;
}

std::string_view weekday(const Date& date) {
  return kWeekdays[std::chrono::weekday(std::chrono::sys_days(calendar(date))).c_encoding()];
}

int day_of_year(const Date& date) {
  const auto first = std::chrono::sys_days(std::chrono::year(date.year) / 1 / 1);
  return static_cast<int>((std::chrono::sys_days(calendar(date)) - first).count()) + 1;
}

std::string number(int value, int width, char fill, bool padded) {
  if (!padded) return fmt::format("{}", value);
  return fill == '0' ? fmt::format("{:0{}}", value, width) : fmt::format("{:{}}", value, width);
}

std::optional<std::string> format_directive(const Date& date, char directive, bool padded) {
  const auto month = static_cast<std::size_t>(date.month - 1);
  const int hour12 = date.hour % 12 == 0 ? 12 : date.hour % 12;
  switch (directive) {
    case 'a': return std::string(weekday(date).substr(0, 3));
    case 'A': return std::string(weekday(date));
    case 'b': return std::string(kMonths[month].substr(0, 3));
    case 'B': return std::string(kMonths[month]);
    case 'd': return number(date.day, 2, '0', padded);
    case 'e': return number(date.day, 2, ' ', padded);
    case 'H': return number(date.hour, 2, '0', padded);
    case 'I': return number(hour12, 2, '0', padded);
    case 'j': return number(day_of_year(date), 3, '0', padded);
    case 'm': return number(date.month, 2, '0', padded);
    case 'M': return number(date.minute, 2, '0', padded);
    case 'p': return date.hour < 12 ? "AM" : "PM";
    case 'S': return number(date.second, 2, '0', padded);
    case 'y': return number(date.year % 100, 2, '0', padded);
    case 'Y': return fmt::format("{}", date.year);
    case '%': return "%";
    default: return std::nullopt;
  }
}

// The two or four digits at `offset`.
std::optional<int> digits(std::string_view text, std::size_t offset, std::size_t count) {
  int value = 0;
  for (std::size_t i = offset; i < offset + count; ++i) {
    if (i >= text.size() || text[i] < '0' || text[i] > '9') return std::nullopt;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

}  // namespace

Date parse_date(std::string_view iso) {
  const auto fail = [&] { input_error("date: expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS, got '{}'", iso); };
  const std::string_view marks = "    -  -  T  :  :  ";
  if (iso.size() != 10 && iso.size() != marks.size()) fail();
  for (std::size_t i = 0; i < iso.size(); ++i)
    if (marks[i] != ' ' && iso[i] != marks[i]) fail();
  const bool with_time = iso.size() > 10;
  const auto field = [&](std::size_t offset, std::size_t count, int highest) {
    const std::optional<int> value = digits(iso, offset, count);
    if (!value || *value > highest) fail();
    return *value;
  };
  Date date{.year = field(0, 4, 9999), .month = field(5, 2, 12), .day = field(8, 2, 31)};
  if (with_time) {
    date.hour = field(11, 2, 23);
    date.minute = field(14, 2, 59);
    date.second = field(17, 2, 59);
  }
  if (date.year < 1000 || !calendar(date).ok()) fail();
  return date;
}

std::string format_date(Guard& guard, const Date& date, std::string_view format) {
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      text += format[i];
      continue;
    }
    const bool padded = i + 1 >= format.size() || format[i + 1] != '-';
    i += padded ? 1 : 2;
    const std::optional<std::string> part =
        i < format.size() ? format_directive(date, format[i], padded) : std::nullopt;
    if (!part) guard.fail("strftime_now: the format '{}' is not supported", format);
    text += *part;
  }
  return text;
}

}  // namespace espalier::jinja
