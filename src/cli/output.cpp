#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace espalier {

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    device_error("standard output: cannot write: {}", std::strerror(errno));
}

void flush_output() {
  if (std::fflush(stdout) != 0) device_error("standard output: cannot write: {}", std::strerror(errno));
}

}  // namespace espalier
