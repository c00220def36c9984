// For tests: a call breaks one rule, in one place.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "device/checked/rule_violation.h"

namespace espalier {

inline void expect_violation(const std::function<void()>& call, const CallSite& site, std::string_view rule) {
  try {
    call();
    ADD_FAILURE() << site.op << ": " << site.argument << ": expected a violation of " << rule;
  } catch (const RuleViolation& violation) {
    EXPECT_EQ(violation.op, site.op) << violation.what();
    EXPECT_EQ(violation.argument, site.argument) << violation.what();
    EXPECT_EQ(violation.row, site.row) << violation.what();
    EXPECT_EQ(violation.rule, rule) << violation.what();
  }
}

}  // namespace espalier
