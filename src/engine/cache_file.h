// Small JSON files in a cache folder, for what a later run need not find out again. Losing one costs time and
// nothing else: a file that is missing or damaged is as good as none, and one that cannot be written is no error.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace espalier {

// What tells keys of cached values apart, in one line; bytes that are no UTF-8 are replaced.
std::string key_text(const nlohmann::ordered_json& key);

// Nothing: no such file, too large for one of ours, or no JSON.
std::optional<nlohmann::ordered_json> read_cache_file(const std::filesystem::path& path);
// Whole or not at all: written under another name, then renamed. False: it could not be.
bool write_cache_file(const std::filesystem::path& path, const nlohmann::ordered_json& object);

}  // namespace espalier
