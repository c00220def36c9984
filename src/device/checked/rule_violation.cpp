#include "device/checked/rule_violation.h"

#include <fmt/format.h>

namespace espalier {
namespace {

std::string message(const CallSite& site, std::string_view rule, std::string_view reason) {
  const std::string row = site.row ? fmt::format(" row {}", *site.row) : "";
  return fmt::format("{}: {}{}: {}: {}", site.op, site.argument, row, rule, reason);
}

}  // namespace

RuleViolation::RuleViolation(const CallSite& site, std::string_view broken_rule, std::string_view reason)
    : std::logic_error(message(site, broken_rule, reason)),
      op(site.op),
      argument(site.argument),
      row(site.row),
      rule(broken_rule) {}

}  // namespace espalier
