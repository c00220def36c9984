// What both kinds of growth promise to whoever grows a tree by them. For tests.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "tree/candidates.h"

namespace espalier {

// growth: fresh, of two levels that ask for two children of each node.
template <typename Growth>
void expect_unasked_children_are_refused(Growth& growth) {
  const std::vector<DraftToken> two = {{1, -1}, {2, -2}}, three = {{1, -1}, {2, -2}, {3, -3}};
  EXPECT_THROW(growth.add_children(1, two), std::logic_error);
  EXPECT_THROW(growth.add_children(0, three), std::logic_error);
  growth.add_children(0, two);
  EXPECT_THROW(growth.add_children(2, two), std::logic_error) << "out of the frontier's order";
  growth.add_children(1, two);
  growth.add_children(2, two);
  EXPECT_THROW(growth.add_children(1, two), std::logic_error) << "after the end";
}

}  // namespace espalier
