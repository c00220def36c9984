#include "decode/prompt_sharing.h"

#include <gtest/gtest.h>

#include <vector>

namespace espalier {
namespace {

class PromptSharing : public ::testing::Test {
 protected:
  std::vector<std::int32_t> same_ = numbers(300), longer_ = numbers(500), other_ = numbers(300);

  static std::vector<std::int32_t> numbers(int count) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(i);
    return tokens;
  }
  static PromptState prompt(std::int64_t id, std::span<const std::int32_t> tokens) {
    return {.id = id, .tokens = tokens, .most = std::ssize(tokens) - 1, .leads = true};
  }
  static std::int64_t leader(const PromptState& follower, const std::vector<PromptState>& older) {
    return leader_of(follower, older);
  }
};

TEST_F(PromptSharing, AnEqualPromptWaitsForTheOldest) {
  const PromptState first = prompt(1, same_), second = prompt(2, same_), third = prompt(3, same_);
  EXPECT_EQ(leader(first, {}), -1);
  EXPECT_EQ(leader(second, {first}), 1);
  EXPECT_EQ(leader(third, {first, second}), 1);
  EXPECT_EQ(leader(first, {second}), -1) << "nobody waits for a younger one";
}

TEST_F(PromptSharing, OnlyWhereItSavesHalfOfWhatIsLeft) {
  for (int common : {149, 150, 151}) {
    other_ = same_;
    other_[static_cast<std::size_t>(common)] = 7;
    EXPECT_EQ(leader(prompt(2, other_), {prompt(1, same_)}), common >= 150 ? 1 : -1) << common;
  }
  PromptState begun = prompt(2, other_);  // 151 in common
  begun.has = 2;
  EXPECT_EQ(leader(begun, {prompt(1, same_)}), 1) << "149 of 298";
  begun.has = 3;
  EXPECT_EQ(leader(begun, {prompt(1, same_)}), -1) << "148 of 297";
  begun.has = 151;
  EXPECT_EQ(leader(begun, {prompt(1, same_)}), -1);
}

TEST_F(PromptSharing, TheOneWithMostInCommonLeads) {
  other_ = longer_;
  other_[400] = 7;
  EXPECT_EQ(leader(prompt(4, longer_), {prompt(1, same_), prompt(2, other_), prompt(3, same_)}), 2);
  EXPECT_EQ(leader(prompt(4, same_), {prompt(1, longer_), prompt(2, other_)}), 1) << "the oldest among equals";
}

TEST_F(PromptSharing, NobodyWaitsForWhatHeMayNotTakeOrWouldNotFind) {
  const auto follows = [&](auto change) {
    PromptState first = prompt(1, same_), second = prompt(2, same_);
    change(first, second);
    return leader(second, {first}) == 1;
  };
  EXPECT_TRUE(follows([](PromptState&, PromptState&) {}));
  EXPECT_FALSE(follows([](PromptState& first, PromptState&) { first.leads = false; }));
  EXPECT_FALSE(follows([](PromptState& first, PromptState&) { first.salt = "another"; }));
  EXPECT_FALSE(follows([](PromptState&, PromptState& second) { second.most = 0; }));
  EXPECT_TRUE(follows([](PromptState& first, PromptState&) { first.findable = 256; })) << "there is more to come";
  EXPECT_FALSE(follows([](PromptState& first, PromptState&) { first.findable = 299; })) << "it is all there";
}

TEST_F(PromptSharing, TheLastPositionOfALeaderIsItsOwn) {
  // The follower's text goes on behind that of the leader, which leaves 299 positions.
  PromptState first = prompt(1, same_);
  EXPECT_EQ(leader(prompt(2, longer_), {first}), 1);
  first.findable = 299;
  EXPECT_EQ(leader(prompt(2, longer_), {first}), -1);
}

}  // namespace
}  // namespace espalier
