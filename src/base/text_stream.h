// Text from anything that can be read to its end: a file, a FIFO, a terminal.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace espalier {

// Waits for a FIFO's writer. Throws InputError naming the path, also when there is more than `max_bytes`.
std::string read_text_stream(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace espalier
