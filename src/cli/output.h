// Standard output. Throws DeviceError when writing fails (a full disk, a closed pipe).
#pragma once

#include <string_view>

namespace espalier {

void print(std::string_view text);
void flush_output();

}  // namespace espalier
