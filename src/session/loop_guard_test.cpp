#include "session/loop_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>

namespace espalier {
namespace {

// How many tokens it takes; nothing: it never notices.
std::optional<std::size_t> noticed_after(std::span<const std::int32_t> tokens) {
  LoopGuard guard;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (guard.push(tokens[i])) return i + 1;
  return std::nullopt;
}

// 0, 1, 2, ..., period - 1, 0, 1, ...
std::vector<std::int32_t> circle(std::size_t period, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>(i % period);
  return tokens;
}

// The definition, word by word.
bool three_equal_stretches(std::span<const std::int32_t> tokens) {
  for (std::size_t length = 32; 3 * length <= tokens.size(); ++length) {
    const auto last = tokens.last(length), middle = tokens.last(2 * length).first(length),
               first = tokens.last(3 * length).first(length);
    if (std::ranges::equal(last, middle) && std::ranges::equal(middle, first)) return true;
  }
  return false;
}

TEST(LoopGuard, TheTokenThatCompletesTheThirdStretchIsTheOneThatEndsIt) {
  EXPECT_EQ(noticed_after(circle(32, 200)), 96u);
  EXPECT_EQ(noticed_after(circle(50, 200)), 150u);
  EXPECT_EQ(noticed_after(circle(1, 200)), 96u) << "one token for ever is 32 of it, three times";
  EXPECT_EQ(noticed_after(circle(20, 200)), 120u) << "a short circle counts by stretches of at least 32";
}

TEST(LoopGuard, TwoStretchesAreNoLoop) {
  EXPECT_EQ(noticed_after(circle(32, 95)), std::nullopt);
  EXPECT_EQ(noticed_after(circle(31, 185)), std::nullopt) << "62 is the first multiple that is long enough";
  EXPECT_EQ(noticed_after(circle(100, 299)), std::nullopt);
}

TEST(LoopGuard, ATextThatOnlyRepeatsWordsGoesOn) {
  std::mt19937 random(7);
  std::vector<std::int32_t> tokens(3000);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 2);
  EXPECT_EQ(noticed_after(tokens), std::nullopt);
}

TEST(LoopGuard, EveryVerdictIsThatOfTheDefinition) {
  const std::uint32_t seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 60; ++round) {
    const std::size_t period = 1 + random() % 60;
    std::vector<std::int32_t> tokens = circle(period, 260);
    for (std::uint32_t changes = random() % 4; changes > 0; --changes) tokens[random() % tokens.size()] = -1;
    LoopGuard guard;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      ASSERT_EQ(guard.push(tokens[i]), three_equal_stretches(std::span(tokens).first(i + 1)))
          << "period " << period << ", token " << i;
  }
}

}  // namespace
}  // namespace espalier
