// How somebody who looks at a file again and again sees that it was written to. Pure values.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

namespace espalier {

// Changes with every write to the file. The clock of the host that wrote has no say in it: states are only compared.
using FileState = std::array<std::int64_t, 4>;

// Zeros where there is no such file.
FileState state_of(const std::filesystem::path& file);

}  // namespace espalier
