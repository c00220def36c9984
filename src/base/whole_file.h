// Small files of our own that are there whole or not at all. What a user names goes through output_file.h.
#pragma once

#include <filesystem>
#include <string_view>

namespace espalier {

// Durable: on disk before it has its name, so that not even a power failure leaves half of it or none.
enum class Durability { durable, quick };

// Writes under a temporary name beside `path` and renames; whatever has that name is replaced, and links are not
// followed. Throws DeviceError with the path and the system's reason, and then leaves nothing behind.
void write_whole_file(const std::filesystem::path& path, std::string_view text,
                      Durability durability = Durability::durable);

// Whoever read standard output has gone: no error, but there is nobody left to work for.
struct OutputClosed {};

// All of the bytes into an open file, or DeviceError with its path; OutputClosed where that is "-" and has no reader.
void write_all(int file, std::string_view bytes, const std::filesystem::path& path);

}  // namespace espalier
