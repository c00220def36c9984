// What stands between method and version in a request line: a path and the parameters behind it, decoded. Strict: what
// is malformed is refused rather than guessed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier {

struct RequestTarget {
  std::string path;                                        // begins with '/', or is "*" (OPTIONS alone)
  std::vector<std::pair<std::string, std::string>> query;  // in order; "a" and "a=" both have an empty value
  std::string authority;  // of the form http://host:port/path that proxies use, else ""

  // The value of the first parameter of that name.
  std::optional<std::string_view> parameter(std::string_view name) const;
};

// Nothing: the target is not one. Percent signs must have two hexadecimal digits, decoded text must be UTF-8 without
// control characters, and in parameters '+' is a space.
std::optional<RequestTarget> parse_request_target(std::string_view target);

}  // namespace espalier
