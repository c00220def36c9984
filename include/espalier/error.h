// The three ways something goes wrong. Messages are one line.
#pragma once

#include <stdexcept>

namespace espalier {

// Outside data is wrong: a file, a request, an option. The message says what, where, what was expected and what was
// found.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The machine failed: no memory, a full disk, a driver error. The message names the call and the reason.
class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A mistake in the program, its caller's or its own, is a std::logic_error: a precondition that does not hold.

}  // namespace espalier
