// JSON from a file, with distrust: UTF-8 only, no duplicate keys, at most 64 levels, nothing after the value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace espalier {

inline constexpr int kMaxJsonDepth = 64;

// Throws InputError "where:line:column: ..." on anything else. `where` is the path.
nlohmann::json parse_json(std::string_view text, std::string_view where);

}  // namespace espalier
