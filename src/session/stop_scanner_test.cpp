#include "session/stop_scanner.h"

#include <gtest/gtest.h>

#include <random>

namespace espalier {
namespace {

TEST(StopScanner, FindsAStopStringAcrossPieces) {
  StopScanner scanner({"END"});
  EXPECT_EQ(scanner.push("the E"), "the ");
  EXPECT_EQ(scanner.push("N"), "");
  EXPECT_FALSE(scanner.stopped());
  EXPECT_EQ(scanner.push("D and more"), "");
  EXPECT_TRUE(scanner.stopped());
  EXPECT_EQ(scanner.push("anything"), "");
  EXPECT_EQ(scanner.finish(), "");
}

TEST(StopScanner, ReleasesWhatTurnedOutToBeHarmless) {
  StopScanner scanner({"END"});
  EXPECT_EQ(scanner.push("E"), "");
  EXPECT_EQ(scanner.push("EN"), "E");
  EXPECT_EQ(scanner.push("X"), "ENX");
  EXPECT_EQ(scanner.push("EN"), "");
  EXPECT_EQ(scanner.finish(), "EN");
}

TEST(StopScanner, OfSeveralStopStringsTheOneThatIsCompleteFirstCounts) {
  StopScanner scanner({"late", "ear"});
  EXPECT_EQ(scanner.push("an early and late"), "an ");
  EXPECT_TRUE(scanner.stopped());
  EXPECT_EQ(StopScanner({"abcd", "bc"}).push("abcd"), "a");
  EXPECT_EQ(StopScanner({"bc", "abc"}).push("abc"), "") << "of two that end together, the longer";
}

TEST(StopScanner, WithoutStopStringsNothingIsHeldBack) {
  StopScanner scanner({"", ""});
  EXPECT_EQ(scanner.push("abc"), "abc");
}

// However the text is cut, the joined output is the text before the stop string that is complete first.
TEST(StopScanner, TheResultDoesNotDependOnHowTheTextIsCut) {
  const std::uint32_t seed = 99;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> stops;
    for (int i = 0; i < 2; ++i) {
      stops.emplace_back();
      for (std::uint32_t n = 2 + random() % 6; n > 0; --n) stops.back() += static_cast<char>('a' + random() % 2);
    }
    std::size_t first = std::string::npos;
    for (std::size_t end = 1; end <= text.size() && first == std::string::npos; ++end)
      for (const std::string& stop : stops)
        if (std::string_view(text).substr(0, end).ends_with(stop)) first = std::min(first, end - stop.size());
    StopScanner scanner(stops);
    std::string joined;
    for (std::size_t at = 0; at < text.size() && !scanner.stopped();) {
      const std::size_t n = 1 + random() % 4;
      joined += scanner.push(std::string_view(text).substr(at, n));
      at += n;
    }
    joined += scanner.finish();
    ASSERT_EQ(joined, text.substr(0, first)) << text << " stops " << stops[0] << " " << stops[1];
  }
}

}  // namespace
}  // namespace espalier
