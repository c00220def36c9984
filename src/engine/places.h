// Where the files of an application lie. The engine asks no environment for them: they are handed in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

struct Places {
  std::optional<std::filesystem::path> cache = {};  // where runs keep what later ones may use; nothing: nowhere
  std::vector<std::filesystem::path> heads = {};    // folders with draft heads
  std::vector<std::filesystem::path> roots = {};    // folders that may hold models/ and data/, the first one first

  // A file or folder below one of the roots.
  std::optional<std::filesystem::path> find(const std::string& relative) const;
};

}  // namespace espalier
