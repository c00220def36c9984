// Whether the process that left its name in a file is still there.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace espalier {

std::string host_name();

// {"host", "pid", "started"} of this process. The last tells it from a later one with the same number.
nlohmann::ordered_json this_process();

// True when it is certain that the process with such a name has ended: it was of this host, and is not there any more.
// Anything else, names that cannot be understood included, may still live.
bool has_ended(const nlohmann::json& process);

}  // namespace espalier
