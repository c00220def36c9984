#include "ranges.h"

#include <algorithm>

namespace ascend_fake {

bool overlap(const Ranges& a, const Ranges& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (overlap(a[i], b[j])) return true;
    if (a[i].end <= b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

Ranges merged(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  Ranges result;
  for (const Range& range : ranges) {
    if (!result.empty() && range.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, range.end);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

void append(Ranges& ranges, const Ranges& more) {
  ranges.insert(ranges.end(), more.begin(), more.end());
}

Ranges without(const Ranges& a, const Ranges& b) {
  Ranges result;
  for (Range range : a) {
    for (const Range& hole : b) {
      if (!overlap(range, hole)) continue;
      if (range.begin < hole.begin) result.push_back({range.begin, hole.begin});
      range.begin = std::min(range.end, hole.end);
    }
    if (range.begin < range.end) result.push_back(range);
  }
  return result;
}

}  // namespace ascend_fake
