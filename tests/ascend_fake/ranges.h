// Byte ranges, of device and of pinned host addresses alike: the two spaces are disjoint. A list of ranges is sorted
// and its ranges are disjoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ascend_fake {

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const Range&) const = default;
};
using Ranges = std::vector<Range>;

inline bool overlap(const Range& a, const Range& b) {
  return a.begin < b.end && b.begin < a.end;
}
bool overlap(const Ranges& a, const Ranges& b);
// Sorted, with touching and overlapping ranges made one.
Ranges merged(Ranges ranges);
void append(Ranges& ranges, const Ranges& more);
// The bytes of a that are not in b.
Ranges without(const Ranges& a, const Ranges& b);

}  // namespace ascend_fake
