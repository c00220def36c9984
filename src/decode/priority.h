// Which of the requests that wait goes first: lower ones. What it is worth, scheduler.h says.
#pragma once

namespace espalier {

inline constexpr int kFirstPriority = -10, kLastPriority = 10;

}  // namespace espalier
