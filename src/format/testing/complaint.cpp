#include "format/testing/complaint.h"

#include <algorithm>

#include "base/error.h"

namespace espalier {

std::vector<std::byte> file_of(std::string_view bytes) {
  std::vector<std::byte> file(bytes.size());
  std::transform(bytes.begin(), bytes.end(), file.begin(), [](char c) { return static_cast<std::byte>(c); });
  return file;
}

std::string complaint(const std::function<void()>& open) {
  try {
    open();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

std::string zeros(std::size_t count) {
  return std::string(count, '\0');
}

}  // namespace espalier
