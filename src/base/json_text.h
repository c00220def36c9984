// JSON from outside, with distrust: UTF-8 only, no duplicate keys, at most 64 levels, nothing after the value.
#pragma once

#include <espalier/error.h>

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace espalier {

inline constexpr int kMaxJsonDepth = 64;

// What is no such JSON: "where:line:column: reason".
struct JsonTextError : InputError {
  JsonTextError(const std::string& message, std::string why, std::size_t at)
      : InputError(message), reason(std::move(why)), offset(at) {}

  std::string reason;
  std::size_t offset;  // of the byte that is wrong; the size of a text that ends too early
};

// Throws JsonTextError on anything else. `where` is the path.
nlohmann::json parse_json(std::string_view text, std::string_view where, int max_depth = kMaxJsonDepth);

}  // namespace espalier
