#include "engine/build_facts.h"

#include "build_commit.h"  // written by cmake/commit.cmake on every build

namespace espalier {

std::string_view build_version() {
  return ESPALIER_VERSION;
}

std::string_view build_commit() {
  return ESPALIER_COMMIT;
}

std::string_view build_compiler() {
  return ESPALIER_COMPILER;
}

std::string_view build_flags() {
  return ESPALIER_FLAGS;
}

}  // namespace espalier
