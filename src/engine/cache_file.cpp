#include "engine/cache_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/temporary_file.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > kMostBytes) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return std::nullopt;
  return text.str();
}

}  // namespace

std::string key_text(const Json& key) {
  return key.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Json> read_cache_file(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_small_file(path);
  if (!text) return std::nullopt;
  try {
    return Json::parse(*text);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

bool write_cache_file(const std::filesystem::path& path, const Json& object) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  remove_leftovers(path.parent_path());
  try {
    write_whole_file(path, object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", Durability::quick);
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

}  // namespace espalier
