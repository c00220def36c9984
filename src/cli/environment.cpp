#include "cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace espalier {

namespace fs = std::filesystem;

fs::path program_file() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

std::optional<std::string> process_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> process_variables() {
  std::vector<std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) variables.emplace_back(*entry);
  return variables;
}

std::vector<std::pair<std::string, std::string>> espalier_variables() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (text.starts_with("ESPALIER_") && equals != std::string_view::npos && !name.ends_with("_API_KEY"))
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::optional<fs::path> user_cache_folder(const Environment& environment) {
  const auto absolute = [&](const char* name) -> std::optional<fs::path> {
    const fs::path path = environment(name).value_or("");
    return path.is_absolute() ? std::optional(path) : std::nullopt;
  };
  if (const auto cache = absolute("XDG_CACHE_HOME")) return *cache / "espalier";
  if (const auto home = absolute("HOME")) return *home / ".cache" / "espalier";
  return std::nullopt;
}

std::vector<fs::path> head_folders(const Environment& environment, const fs::path& program) {
  const fs::path beside = program.parent_path();
  std::vector<fs::path> folders, whole;
  for (const fs::path& candidate :
       {fs::path(environment("ESPALIER_HEADS").value_or("")), fs::path("heads"), beside / ".." / "heads",
        beside / ".." / ".." / "heads", beside / ".." / "share" / "espalier" / "heads"}) {
    std::error_code error;
    if (candidate.empty() || !fs::is_directory(candidate, error)) continue;
    const fs::path canonical = fs::canonical(candidate, error);
    if (error || std::ranges::find(whole, canonical) != whole.end()) continue;
    whole.push_back(canonical);
    folders.push_back(candidate.lexically_normal());
  }
  return folders;
}

ascend::LibraryOptions ascend_library(const Environment& environment) {
  return {.home = environment("ASCEND_HOME_PATH").value_or(""),
          .library = environment("ESPALIER_ASCEND_LIBRARY").value_or("")};
}

Places process_places() {
  const fs::path program = program_file(), beside = program.parent_path();
  return {.cache = user_cache_folder(process_environment),
          .heads = head_folders(process_environment, program),
          .roots = {".", beside / ".." / "..", beside / ".." / "share" / "espalier"}};
}

}  // namespace espalier
