// The one device that a run of the tests is to judge, where the environment names one as --device does (`espalier
// selftest`): ESPALIER_JUDGED_DEVICE=cuda:1. Nothing: all devices of this machine, and those that only tests have.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace espalier {

inline std::optional<std::string> judged_device() {
  const char* const name = std::getenv("ESPALIER_JUDGED_DEVICE");
  return name == nullptr || *name == '\0' ? std::nullopt : std::optional<std::string>(name);
}

// Its name without a number, as tests call it: "cuda".
inline std::optional<std::string> judged_kind() {
  const std::optional<std::string> name = judged_device();
  return name ? std::optional(name->substr(0, name->find(':'))) : std::nullopt;
}

}  // namespace espalier
