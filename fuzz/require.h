// What has to hold whatever the bytes are: where it does not, the fuzzer has found something.
#pragma once

#include <cstdlib>
#include <functional>
#include <string_view>

#include "base/error.h"

inline void require(bool condition) {
  if (!condition) std::abort();
}

// Reads, or says in one line why not.
inline void refuse_in_one_line(const std::function<void()>& read) {
  try {
    read();
  } catch (const espalier::InputError& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}
