// Every limit of the server, at its edge and beyond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "serve/http/testing/fake_site.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Time = HttpLimits::Time;

std::string get_of_size(std::size_t size) {
  const std::string without = get_bytes("/health", "X-Filling: \r\n");
  return get_bytes("/health", fmt::format("X-Filling: {}\r\n", std::string(size - without.size(), 'x')));
}

TEST(HttpServerLimits, HeadersHaveALimitToTheByte) {
  const FakeSite site;
  EXPECT_EQ(site.ask(get_of_size(16383)).status, 200);
  EXPECT_EQ(site.ask(get_of_size(16384)).status, 200);
  RawClient client = site.client();
  client.send(get_of_size(16385));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 431);
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_TRUE(client.ended());
}

TEST(HttpServerLimits, HeadersThatNeverEndAreCutOff) {
  const FakeSite site;
  EXPECT_EQ(site.ask("GET /health HTTP/1.1\r\nX: " + std::string(100000, 'x')).status, 431);
  EXPECT_EQ(site.ask("GET /" + std::string(100000, 'x')).status, 431);
}

TEST(HttpServerLimits, BodiesHaveALimitToTheByte) {
  const FakeSite site(on_any_port({.body_bytes = 1000}));
  EXPECT_EQ(site.ask(post_bytes("/echo", std::string(999, 'x'))).status, 200);
  EXPECT_EQ(site.ask(post_bytes("/echo", std::string(1000, 'x'))).status, 200);
  const RawAnswer answer = site.ask(post_bytes("/echo", std::string(1001, 'x')));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.body, "413 the body is too large: expected at most 1000 bytes, got 1001");
}

TEST(HttpServerLimits, AConnectionCarriesSoManyRequests) {
  const FakeSite site(on_any_port({.requests = 3}));
  RawClient client = site.client();
  client.send(get_bytes("/health") + get_bytes("/nowhere") + get_bytes("/health") + get_bytes("/health"));
  EXPECT_EQ(client.read_answer().header("Connection"), "");
  EXPECT_EQ(client.read_answer().header("Connection"), "");
  EXPECT_EQ(client.read_answer().header("Connection"), "close");
  EXPECT_EQ(client.read_answer().status, 0);
}

TEST(HttpServerLimits, TrickledHeadersDoNotExtendTheirTime) {
  const FakeSite site(on_any_port({.header_time = Time(60)}));
  RawClient client = site.client();
  client.send("GET /health HTTP/1.1\r\nX: ");
  while (!client.readable() && client.send("x")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(answer.body, "408 the headers took too long");
  EXPECT_TRUE(client.ended());
}

TEST(HttpServerLimits, TrickledBodiesDoNotExtendTheirTime) {
  const FakeSite site(on_any_port({.body_time = Time(60)}));
  RawClient client = site.client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n\r\n");
  while (!client.readable() && client.send("x")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(client.read_answer().body, "408 the body took too long");
  EXPECT_TRUE(client.ended());
  EXPECT_EQ(site.handled(), 0);
}

TEST(HttpServerLimits, SilentConnectionsAreClosedWithoutAWord) {
  const FakeSite site(on_any_port({.header_time = Time(300), .idle_time = Time(300)}));
  RawClient fresh = site.client();
  RawClient kept = site.client();
  kept.send(get_bytes("/health"));
  EXPECT_EQ(kept.read_answer().status, 200);
  kept.send("\r\n");
  EXPECT_EQ(fresh.read_to_end(), "");
  EXPECT_EQ(kept.read_to_end(), "");
}

TEST(HttpServerLimits, ARequestMayTakeLongerThanItsHeaders) {
  constexpr Time kShort(200);
  FakeSite site(on_any_port({.header_time = kShort, .body_time = kShort, .idle_time = kShort, .write_time = kShort}));
  RawClient client = site.client();
  client.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(held.reply->gone());
  held.reply->send({.body = "late"});
  EXPECT_EQ(client.read_answer().body, "late");
}

TEST(HttpServerLimits, AReaderThatTakesNothingIsGone) {
  FakeSite site(on_any_port({.outbox_bytes = std::size_t{1} << 30, .write_time = Time(50)}));
  RawClient client = site.client();
  client.shrink_buffers(4096);
  client.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  held.reply->begin_events();
  EXPECT_TRUE(held.reply->write(std::string(std::size_t{32} << 20, 'x')));
  EXPECT_TRUE(site.gone(1));
  EXPECT_FALSE(held.reply->write("more"));
  EXPECT_TRUE(eventually([&] { return site.server().connections() == 0; }));
}

TEST(HttpServerLimits, AWholeAnswerThatNobodyReadsIsGivenUp) {
  FakeSite site(on_any_port({.write_time = Time(50)}));
  RawClient client = site.client();
  client.shrink_buffers(4096);
  client.send(get_bytes("/big?bytes=30000000"));
  EXPECT_TRUE(eventually([&] { return site.handled() == 1 && site.server().connections() == 0; }));
}

// The system takes bytes from the server in large portions, so a reader that is slow but reads must be told from one
// that does not by what it acknowledges.
TEST(HttpServerLimits, ASlowReaderGetsEverything) {
  FakeSite site(on_any_port({.write_time = Time(400)}));
  RawClient client = site.client();
  client.shrink_buffers(std::size_t{64} << 10);
  constexpr std::size_t kBytes = 8000000;
  client.send(get_bytes(fmt::format("/big?bytes={}", kBytes)));
  EXPECT_FALSE(client.read_until("\r\n\r\n").empty());
  std::size_t bytes = 0;
  for (int i = 0; bytes < kBytes; ++i) {
    const std::string piece = client.read_some(12000);
    if (piece.empty()) break;
    bytes += piece.size();
    if (i < 100) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(bytes, kBytes);
}

TEST(HttpServerLimits, AnOutboxThatOverflowsEndsItsRequest) {
  FakeSite site(on_any_port({.outbox_bytes = 100000}));
  RawClient client = site.client();
  client.shrink_buffers(4096);
  client.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  held.reply->begin_events();
  const std::string event(10000, 'x');
  for (int i = 0; i < 100000 && held.reply->write(event); ++i)
    EXPECT_LE(held.reply->waiting_bytes(), 100000u + event.size());
  EXPECT_TRUE(held.reply->gone());
  EXPECT_TRUE(site.gone(1));
  EXPECT_FALSE(held.reply->finish());
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
}

TEST(HttpServerLimits, WhoeverIsOneTooManyWaits) {
  FakeSite site(on_any_port({.connections = 2}));
  RawClient first = site.client();
  RawClient second = site.client();
  first.send(get_bytes("/hold"));
  second.send(get_bytes("/hold"));
  const HeldRequest one = site.held();
  const HeldRequest two = site.held();
  RawClient third = site.client();
  third.send(get_bytes("/health"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(third.readable());
  EXPECT_EQ(site.server().connections(), 2);
  first.close();
  EXPECT_EQ(third.read_answer().status, 200);
}

TEST(HttpServerLimits, AnIdleConnectionMakesRoom) {
  FakeSite site(on_any_port({.connections = 2}));
  RawClient idle = site.client();
  idle.send(get_bytes("/health"));
  EXPECT_EQ(idle.read_answer().status, 200);
  RawClient busy = site.client();
  busy.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
  EXPECT_TRUE(idle.ended());
  held.reply->send({.body = "still here"});
  EXPECT_EQ(busy.read_answer().body, "still here");
}

TEST(HttpServerLimits, AConnectionThatBecomesIdleMakesRoom) {
  FakeSite site(on_any_port({.connections = 1}));
  RawClient busy = site.client();
  busy.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  RawClient waiting = site.client();
  waiting.send(get_bytes("/health"));
  held.reply->send({});
  EXPECT_EQ(busy.read_answer().status, 200);
  EXPECT_EQ(waiting.read_answer().status, 200);
}

// All descriptors this process may have but those it has already, for a while.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int copy = ::dup(0); copy >= 0; copy = ::dup(0)) taken_.push_back(copy);
  }
  ~NoDescriptors() {
    for (const int descriptor : taken_) ::close(descriptor);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  void give_back_one() {
    ::close(taken_.back());
    taken_.pop_back();
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

TEST(HttpServerLimits, WaitsWhereTheSystemHasNoDescriptors) {
  FakeSite site(on_any_port({.accept_pause = Time(10)}));
  {
    NoDescriptors none;
    none.give_back_one();
    RawClient client = site.client();
    client.send(get_bytes("/health"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(client.readable());
    none.give_back_one();
    EXPECT_EQ(client.read_answer().status, 200);
  }
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
}

}  // namespace
}  // namespace espalier
