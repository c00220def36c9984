// For tests of configurations: one field other than it was.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace espalier {

nlohmann::json with(nlohmann::json config, const std::string& key, nlohmann::json value);

}  // namespace espalier
