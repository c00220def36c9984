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

TEST(StopScanner, TellsWhichStopStringItFound) {
  StopScanner scanner({"late", "ear"});
  EXPECT_EQ(scanner.found(), std::nullopt);
  scanner.push("an early and late");
  EXPECT_EQ(scanner.found(), "ear");
  StopScanner together({"bc", "abc"});
  together.push("abc");
  EXPECT_EQ(together.found(), "abc");
}

TEST(StopScanner, IncludesTheStopStringWhereAskedTo) {
  StopScanner scanner({"END"}, true);
  EXPECT_EQ(scanner.push("the E"), "the ");
  EXPECT_EQ(scanner.push("ND and more"), "END");
  EXPECT_TRUE(scanner.stopped());
  EXPECT_EQ(scanner.finish(), "");
}

TEST(StopScanner, WhatIsPassedMayBeginAStopStringButNotEndOne) {
  StopScanner scanner({"END"});
  EXPECT_EQ(scanner.pass("the END of E"), "the END of ");
  EXPECT_EQ(scanner.pass("N"), "");
  EXPECT_FALSE(scanner.stopped());
  EXPECT_EQ(scanner.push("D!"), "");
  EXPECT_TRUE(scanner.stopped());
  // The shorter one is complete in what was passed, where the longer one may begin.
  StopScanner nested({"abcd", "bc"});
  EXPECT_EQ(nested.pass("abc"), "");
  EXPECT_EQ(nested.push("x"), "abcx");
  EXPECT_FALSE(nested.stopped());
  EXPECT_EQ(nested.push("bc"), "");
  EXPECT_TRUE(nested.stopped());
}

TEST(StopScanner, ATextThatIsPassedInAnyPiecesIsFoundInTheSameWay) {
  std::mt19937 random(5);
  const std::vector<std::string> stops = {"aab", "ba", "abb", "bbbb"};
  for (int run = 0; run < 500; ++run) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += random() % 2 == 0 ? 'a' : 'b';
    const std::size_t passed = random() % text.size();
    const auto scan = [&](bool in_pieces) {
      StopScanner scanner(stops);
      std::string shown;
      for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at < passed ? passed : text.size();
        if (in_pieces) end = std::min(end, at + 1 + random() % 3);
        const std::string piece = text.substr(at, end - at);
        shown += at < passed ? scanner.pass(piece) : scanner.push(piece);
        at = end;
      }
      return shown + scanner.finish() + "|" + scanner.found().value_or("none");
    };
    ASSERT_EQ(scan(true), scan(false)) << text << " passed to " << passed;
  }
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
