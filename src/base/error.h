// The three ways something goes wrong. Only cli/ (and later serve/, eval/) catch them.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace espalier {

// Outside data is wrong: a file, a request, a flag. The message is one line: what, where, expected, got.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The machine failed: no memory, a full disk, a driver error. The message names the call and the reason.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

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
