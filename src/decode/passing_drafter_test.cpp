#include "decode/passing_drafter.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

// Says of itself what no drafter says by default.
class OddDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "odd"; }
  int max_depth() const override { return 3; }
  bool follows_text() const override { return false; }
  bool needs_every_text() const override { return true; }
  std::int64_t round_rows() const override { return 7; }
  std::unique_ptr<DraftSequence> open(SequenceId, std::span<const std::int32_t>) override { return nullptr; }
  std::vector<Guesses> expand(std::span<const DraftJob> jobs) override { return std::vector<Guesses>(jobs.size()); }
  bool guesses_on_host() const override { return true; }
};

TEST(PassingDrafter, SaysOfItselfWhatTheOtherSays) {
  PassingDrafter drafter(std::make_unique<OddDrafter>());
  EXPECT_EQ(drafter.name(), "odd");
  EXPECT_EQ(drafter.max_depth(), 3);
  EXPECT_FALSE(drafter.follows_text());
  EXPECT_TRUE(drafter.needs_every_text());
  EXPECT_EQ(drafter.round_rows(), 7);
  EXPECT_TRUE(drafter.guesses_on_host());
  EXPECT_EQ(drafter.expand(std::vector<DraftJob>(2)).size(), 2u);
  EXPECT_EQ(drafter.resident(), nullptr);
}

}  // namespace
}  // namespace espalier
