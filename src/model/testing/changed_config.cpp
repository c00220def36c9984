#include "model/testing/changed_config.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace espalier {

nlohmann::json with(nlohmann::json config, const std::string& key, nlohmann::json value) {
  config[key] = std::move(value);
  return config;
}

}  // namespace espalier
