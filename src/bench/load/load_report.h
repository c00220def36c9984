// What the load benchmark measured, as tables for people and as JSON. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/load/load_benchmark.h"

namespace espalier {

// No line is longer than 100 columns.
std::string load_text(const LoadResult& result);
nlohmann::ordered_json load_json(const LoadResult& result);

}  // namespace espalier
