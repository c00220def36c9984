#include "bench/load/event_stream.h"

#include <gmock/gmock.h>

#include <random>
#include <vector>

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> events_of(std::string_view text) {
  std::vector<std::string> events;
  EventStream stream([&](std::string data) { events.push_back(std::move(data)); });
  EXPECT_TRUE(stream.feed(text));
  return events;
}

TEST(EventStream, AnEventIsItsDataLines) {
  EXPECT_THAT(events_of("data: a\n\ndata:b\n\n"), ElementsAre("a", "b"));
  EXPECT_THAT(events_of("data: a\ndata: b\n\n"), ElementsAre("a\nb"));
  EXPECT_THAT(events_of("data\n\n"), ElementsAre(""));
  EXPECT_THAT(events_of("data:  two\n\n"), ElementsAre(" two"));
}

TEST(EventStream, CommentsOtherFieldsAndUnfinishedEventsArePassedOver) {
  EXPECT_THAT(events_of(":\n\n: ping\n\nevent: x\nid: 3\n\nretry: 1\n\n"), IsEmpty());
  EXPECT_THAT(events_of("event: x\ndata: a\nid: 1\n\n"), ElementsAre("a"));
  EXPECT_THAT(events_of("data: never ended\n"), IsEmpty());
  EXPECT_THAT(events_of("database: a\n\n data: b\n\n"), IsEmpty());
}

TEST(EventStream, AllThreeEndsOfLinesCount) {
  EXPECT_THAT(events_of("data: a\r\n\r\ndata: b\r\rdata: c\n\n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(events_of("data: a\r\ndata: b\r\n\r\n"), ElementsAre("a\nb"));
}

TEST(EventStream, HoweverTheBytesAreCutTheEventsAreTheSame) {
  const std::string text =
      "data: {\"a\": 1}\r\n\r\n:\n\ndata: x\rdata: y\r\rdata: caf\xc3\xa9\n\nid: 7\ndata:\n\ndata: [DONE]\n\n";
  const auto whole = events_of(text);
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::string> events;
    EventStream stream([&](std::string data) { events.push_back(std::move(data)); });
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t count = random() % 6;
      EXPECT_TRUE(stream.feed(std::string_view(text).substr(begin, count)));
      begin += count;
    }
    EXPECT_EQ(events, whole) << "seed " << seed;
  }
}

TEST(EventStream, AnEventWithoutAnEndIsGivenUp) {
  const std::string piece(EventStream::kMostBytes / 4, 'x');
  for (const bool lines : {false, true}) {
    std::size_t events = 0;
    EventStream stream([&](const std::string&) { ++events; });
    bool well = true;
    for (int i = 0; i < 5; ++i) well = stream.feed(lines ? "data: " + piece + "\n" : piece);
    EXPECT_FALSE(well);
    EXPECT_FALSE(stream.feed("\n\ndata: a\n\n"));
    EXPECT_EQ(events, 0u);
  }
}

TEST(EventStream, RandomBytesAreNoReasonToStop) {
  std::mt19937 random(7);
  EventStream stream([](const std::string&) {});
  for (int i = 0; i < 1000; ++i) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = "data:\r\n \x00\xff{}"[random() % 12];
    EXPECT_TRUE(stream.feed(bytes));
    EXPECT_TRUE(stream.feed("\n\n"));
  }
}

}  // namespace
}  // namespace espalier
