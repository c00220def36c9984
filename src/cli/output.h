// Standard output and standard error.
#pragma once

#include <string_view>

#include "base/whole_file.h"

namespace espalier {

// Throws DeviceError when standard output does not take it (a full disk), OutputClosed (base/whole_file.h) where its
// reader has gone.
void print(std::string_view text);
void flush_output();
// To standard error; what that does not take is lost, and the work goes on.
void tell(std::string_view text);

// Where the program was started without one of the three, /dev/null stands in for it, so that no file gets its number.
// It can be read only: an answer that nobody can have is still an error.
void open_missing_descriptors();

}  // namespace espalier
