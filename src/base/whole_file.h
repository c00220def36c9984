// Small files that are there whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace espalier {

// Writes under a temporary name beside `path`, waits for the disk, and renames; a file of that name is replaced. Throws
// DeviceError with the path and the system's reason, and then leaves nothing behind.
void write_whole_file(const std::filesystem::path& path, std::string_view text);

// All of the bytes into an open file, or DeviceError with its path.
void write_all(int file, std::string_view bytes, const std::filesystem::path& path);

}  // namespace espalier
