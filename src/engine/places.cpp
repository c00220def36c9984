#include "engine/places.h"

namespace espalier {

std::optional<std::filesystem::path> Places::find(const std::string& relative) const {
  std::error_code ignored;
  for (const std::filesystem::path& root : roots)
    if (std::filesystem::exists(root / relative, ignored)) return (root / relative).lexically_normal();
  return std::nullopt;
}

}  // namespace espalier
