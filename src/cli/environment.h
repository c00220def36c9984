// What the environment says: variables, and where a user's files lie.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/ascend/library.h"
#include "engine/places.h"

namespace espalier {

// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);
// All of them, "NAME=value", for a child of this process.
std::vector<std::string> process_variables();

// The variables that this program reads: those that begin with ESPALIER_, but for keys of servers, which no record may
// have.
std::vector<std::pair<std::string, std::string>> espalier_variables();

// The file of this program; empty where the system does not tell.
std::filesystem::path program_file();

// $XDG_CACHE_HOME/espalier, else $HOME/.cache/espalier; nothing where neither is set to an absolute path.
std::optional<std::filesystem::path> user_cache_folder(const Environment& environment);

// $ESPALIER_HEADS, heads/ in the working directory, and beside the program: ../heads, ../../heads,
// ../share/espalier/heads. Those that are not there are left out, and each is named once. program: its file.
std::vector<std::filesystem::path> head_folders(const Environment& environment, const std::filesystem::path& program);

// Where CANN is: $ASCEND_HOME_PATH, which its set_env.sh sets, or $ESPALIER_ASCEND_LIBRARY, one library instead of it.
ascend::LibraryOptions ascend_library(const Environment& environment);

// Of this process. models/ and data/ lie in the working directory, where this program was built (build/bin/espalier),
// or where it was installed (share/espalier).
Places process_places();

}  // namespace espalier
