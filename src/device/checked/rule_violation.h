// A call that breaks a rule of the device contract, with the place where it does. The numbers are those of the Ascend
// contract (docs/checked-device.md).
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace espalier {

// Where in a call something was found.
struct CallSite {
  std::string_view op;
  std::string_view argument;
  std::optional<std::int64_t> row = std::nullopt;
};

// what(): "attention: rows.slot row 3: R12: slot 17 is written twice in one call"
class RuleViolation : public std::logic_error {
 public:
  RuleViolation(const CallSite& site, std::string_view rule, std::string_view reason);

  std::string op;
  std::string argument;
  std::optional<std::int64_t> row;
  std::string rule;
};

}  // namespace espalier
