#include "cache/slot_census.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Blocks = std::vector<std::int32_t>;

TEST(SlotCensus, EverySlotClaimedOnceIsComplete) {
  SlotCensus census(4, 2);
  census.claim(Blocks{0}, SlotUse::padding);
  census.claim(Blocks{3, 1}, 0, 3, SlotUse::held);
  census.claim(Blocks{3, 1}, 3, 4, SlotUse::speculative);
  census.claim(Blocks{2}, SlotUse::free);
  census.check_complete();
}

TEST(SlotCensus, ASlotWithTwoUsesIsNamedWithBoth) {
  SlotCensus census(4, 2);
  census.claim(Blocks{2, 3}, 0, 3, SlotUse::held);
  EXPECT_THAT([&] { census.claim(Blocks{3}, SlotUse::free); },
              ThrowsMessage<std::logic_error>(HasSubstr("slot 6 is held and free")));
}

TEST(SlotCensus, ALostSlotIsNamed) {
  SlotCensus census(2, 4);
  census.claim(Blocks{1, 0}, 0, 7, SlotUse::speculative);
  EXPECT_THAT([&] { census.check_complete(); }, ThrowsMessage<std::logic_error>(HasSubstr("slot 3 is lost")));
}

TEST(SlotCensus, PositionsBehindATableAndBlocksBehindThePoolAreRefused) {
  SlotCensus census(2, 4);
  EXPECT_THROW(census.claim(Blocks{1}, 0, 5, SlotUse::held), std::logic_error);
  EXPECT_THROW(census.claim(Blocks{2}, SlotUse::free), std::logic_error);
  EXPECT_THROW(census.claim(Blocks{-1}, SlotUse::free), std::logic_error);
}

}  // namespace
}  // namespace espalier
