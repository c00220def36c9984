#include "format/testing/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>

#include "base/error.h"

namespace espalier {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "espalier-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) device_error("mkdtemp {}: {}", name, std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(std::string_view name, std::string_view bytes) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file << bytes;
  check(file.good(), "cannot write {}", (path_ / name).string());
  return path_ / name;
}

}  // namespace espalier
