// The names by which drafters are asked for, where several mean one kind.
#pragma once

#include <string_view>

namespace espalier {

// "eagle", which is whatever generation the head has, or one of them.
inline bool names_eagle(std::string_view drafter) {
  return drafter == "eagle" || drafter == "eagle2" || drafter == "eagle3";
}

}  // namespace espalier
