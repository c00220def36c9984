// The three ways something goes wrong, as calls that format their one line. Only applications catch (cli/), eval/ to go
// on with the next turn, and whoever passes over a file that is not needed.
#pragma once

#include <espalier/error.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace espalier {

template <typename... Args>
[[noreturn]] void input_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void device_error(fmt::format_string<Args...> format, Args&&... args) {
  throw DeviceError(fmt::format(format, std::forward<Args>(args)...));
}

// Our own mistake: a precondition of a public function does not hold. On in every build; throws std::logic_error,
// so that a test can see it and a server can drop one request instead of all of them.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace espalier
