// For tests of configurations: one field other than it was.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace espalier {

inline nlohmann::json with(nlohmann::json config, const std::string& key, nlohmann::json value) {
  config[key] = std::move(value);
  return config;
}

}  // namespace espalier
