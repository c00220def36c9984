// Clients that leave, and servers that stop: whoever is left over notices, and nothing is left behind.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/testing/sanitized.h"
#include "serve/http/testing/fake_site.h"

namespace espalier {
namespace {

using Time = HttpLimits::Time;

enum class Leaving { closes, resets, half_closes };

void leave(RawClient& client, Leaving how) {
  switch (how) {
    case Leaving::closes: client.close(); break;
    case Leaving::resets: client.reset(); break;
    case Leaving::half_closes: client.half_close(); break;
  }
}

HttpOptions quick_looks() {
  return on_any_port({.look_time = Time(10)});
}

class HttpServerClients : public testing::TestWithParam<Leaving> {};

TEST_P(HttpServerClients, WhoLeavesWhileWaitingIsNoticed) {
  FakeSite site;
  RawClient client = site.client();
  client.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  leave(client, GetParam());
  EXPECT_TRUE(site.gone(1));
  EXPECT_TRUE(held.reply->gone());
  EXPECT_FALSE(held.reply->send({}));
  EXPECT_TRUE(eventually([&] { return site.server().connections() == 0; }));
}

TEST_P(HttpServerClients, WhoLeavesInAStreamIsNoticed) {
  FakeSite site;
  RawClient client = site.client();
  client.send(post_bytes("/hold", "{}"));
  const HeldRequest held = site.held();
  held.reply->begin_events();
  held.reply->write("data: 1\n\n");
  client.read_until("data: 1\n\n");
  leave(client, GetParam());
  EXPECT_TRUE(site.gone(1));
  EXPECT_FALSE(held.reply->write("data: 2\n\n"));
  EXPECT_TRUE(eventually([&] { return site.server().connections() == 0; }));
}

TEST_P(HttpServerClients, WhoLeavesBehindTheNextRequestIsNoticed) {
  FakeSite site(quick_looks());
  RawClient client = site.client();
  client.send(get_bytes("/hold") + get_bytes("/health"));
  const HeldRequest held = site.held();
  leave(client, GetParam());
  EXPECT_TRUE(site.gone(1));
  EXPECT_EQ(site.handled(), 1);
}

TEST_P(HttpServerClients, WhoSendsTheNextRequestLaterAndLeavesIsNoticed) {
  FakeSite site(quick_looks());
  RawClient client = site.client();
  client.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  client.send("G");
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(held.reply->gone());
  leave(client, GetParam());
  EXPECT_TRUE(site.gone(1));
}

std::string name_of(const testing::TestParamInfo<Leaving>& info) {
  const std::vector<std::string> names = {"Closes", "Resets", "HalfCloses"};
  return names[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Leaving, HttpServerClients,
                         testing::Values(Leaving::closes, Leaving::resets, Leaving::half_closes), name_of);

TEST(HttpServerClient, WhoHalfClosesStillGetsAnAnswerThatIsThere) {
  const FakeSite site;
  RawClient client = site.client();
  client.send(get_bytes("/big?bytes=3000000") + get_bytes("/health"));
  client.half_close();
  EXPECT_EQ(client.read_answer().body.size(), 3000000u);
  EXPECT_EQ(client.read_answer().body, "ok");
  EXPECT_EQ(client.read_to_end(), "");
}

TEST(HttpServerClient, WhoStaysIsNotDisturbedByThoseWhoLeave) {
  FakeSite site;
  RawClient staying = site.client();
  staying.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  std::vector<HeldRequest> others;
  for (const Leaving how : {Leaving::closes, Leaving::resets, Leaving::half_closes}) {
    RawClient client = site.client();
    client.send(get_bytes("/hold"));
    others.push_back(site.held());
    leave(client, how);
  }
  EXPECT_TRUE(site.gone(3));
  EXPECT_FALSE(held.reply->gone());
  held.reply->send({.body = "there"});
  EXPECT_EQ(staying.read_answer().body, "there");
}

TEST(HttpServerClient, AReplyMayOutliveItsServer) {
  auto site = std::make_unique<FakeSite>();
  RawClient waiting = site->client();
  RawClient streaming = site->client();
  waiting.send(get_bytes("/hold"));
  const HeldRequest held = site->held();
  streaming.send(get_bytes("/hold"));
  const HeldRequest stream = site->held();
  stream.reply->begin_events();
  site->stop();
  EXPECT_TRUE(site->gone(2));
  EXPECT_FALSE(held.reply->send({}));
  EXPECT_FALSE(stream.reply->write("x"));
  EXPECT_TRUE(waiting.ended());
  EXPECT_TRUE(streaming.ended());
}

TEST(HttpServerStop, ClosesTheListenerAndWhoeverIsIdle) {
  FakeSite site;
  RawClient fresh = site.client();
  RawClient idle = site.client();
  idle.send(get_bytes("/health"));
  EXPECT_EQ(idle.read_answer().status, 200);
  EXPECT_TRUE(eventually([&] { return site.server().connections() == 2; }));
  site.server().drain();
  EXPECT_TRUE(site.server().wait_until_quiet(RawClient::kPatience));
  EXPECT_TRUE(fresh.ended());
  EXPECT_TRUE(idle.ended());
  EXPECT_THROW(site.client(), DeviceError);
  EXPECT_EQ(site.server().connections(), 0);
}

TEST(HttpServerStop, LetsRunningRequestsEnd) {
  FakeSite site;
  RawClient waiting = site.client();
  waiting.send(get_bytes("/hold") + get_bytes("/health"));
  const HeldRequest held = site.held();
  RawClient streaming = site.client();
  streaming.send(get_bytes("/hold"));
  const HeldRequest stream = site.held();
  stream.reply->begin_events();
  streaming.read_until("\r\n\r\n");
  site.server().drain();
  EXPECT_FALSE(site.server().wait_until_quiet(Time(30)));
  EXPECT_FALSE(held.reply->gone());
  held.reply->send({.body = "done"});
  const RawAnswer answer = waiting.read_answer();
  EXPECT_EQ(answer.body, "done");
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_EQ(waiting.read_to_end(), "");
  stream.reply->write("data: [DONE]\n\n");
  stream.reply->finish();
  EXPECT_EQ(streaming.read_to_end(), "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
  waiting.close();
  EXPECT_TRUE(site.server().wait_until_quiet(RawClient::kPatience));
}

// However much of it is there: a client that never sends the rest would keep the server from ending.
TEST(HttpServerStop, RefusesARequestThatIsNotWhole) {
  const std::string bytes = post_bytes("/echo", "body", "Expect: 100-continue\r\n");
  const std::size_t head = bytes.size() - 4;
  for (const std::size_t sent : {std::size_t{1}, std::size_t{20}, head - 1, head, head + 3}) {
    FakeSite site;
    RawClient client = site.client();
    client.send(get_bytes("/health") + bytes.substr(0, sent));
    EXPECT_EQ(client.read_answer().status, 200);  // so the rest has been read too
    if (sent >= head) {
      EXPECT_EQ(client.read_answer().status, 100);
    }
    site.server().drain();
    const RawAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 503) << sent;
    EXPECT_EQ(answer.header("Connection"), "close");
    EXPECT_EQ(answer.header("Retry-After"), "1");
    client.close();
    EXPECT_TRUE(site.server().wait_until_quiet(RawClient::kPatience));
    EXPECT_EQ(site.handled(), 1);
  }
}

TEST(HttpServerStop, WaitsForNobodyWhoSendsHalfARequestAndStays) {
  FakeSite site(on_any_port({.header_time = Time(600'000), .body_time = Time(600'000), .linger_time = Time(10)}));
  RawClient head = site.client();
  head.send("GET / HT");
  RawClient body = site.client();
  body.send(post_bytes("/echo", "body", "Expect: 100-continue\r\n").substr(0, 130));
  EXPECT_TRUE(eventually([&] { return site.server().connections() == 2; }));
  site.server().drain();
  EXPECT_TRUE(site.server().wait_until_quiet(RawClient::kPatience));
}

TEST(HttpServerStop, CanBeAtOnce) {
  FakeSite site;
  RawClient waiting = site.client();
  waiting.send(get_bytes("/hold"));
  const HeldRequest held = site.held();
  RawClient streaming = site.client();
  streaming.send(get_bytes("/hold"));
  const HeldRequest stream = site.held();
  RawClient half = site.client();
  half.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\nx");
  stream.reply->begin_events();
  site.server().abort();
  EXPECT_TRUE(site.gone(2));
  EXPECT_TRUE(site.server().wait_until_quiet(RawClient::kPatience));
  EXPECT_TRUE(waiting.ended());
  EXPECT_TRUE(streaming.ended());
  EXPECT_TRUE(half.ended());
}

TEST(HttpServerStop, IsSafeWhileOthersWrite) {
  for (int round = 0; round < 20; ++round) {
    FakeSite site;
    RawClient client = site.client();
    client.send(get_bytes("/hold"));
    const HeldRequest held = site.held();
    held.reply->begin_events();
    std::thread writer([reply = held.reply] {
      while (reply->write("data: x\n\n")) std::this_thread::yield();
    });
    client.read_until("data: x");
    site.stop();
    writer.join();
  }
}

TEST(HttpServerStop, NeedsNoStart) {
  HttpServer server(on_any_port());
  server.drain();
  EXPECT_FALSE(server.wait_until_quiet(Time(1)));
}

std::ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(HttpServerClient, AThousandThatComeAndGoLeaveNothing) {
  constexpr int kClients = kSanitized ? 300 : 1000;
  constexpr unsigned kSeed = 11;
  FakeSite site(quick_looks());
  const std::ptrdiff_t before = open_descriptors();
  std::mt19937 random(kSeed);
  for (int i = 0; i < kClients; ++i) {
    RawClient client = site.client();
    const std::vector<std::string> beginnings = {"",
                                                 "G",
                                                 get_bytes("/health"),
                                                 post_bytes("/echo", "x"),
                                                 post_bytes("/echo", "x").substr(0, 90),
                                                 "nonsense\r\n\r\n",
                                                 get_bytes("/hold"),
                                                 get_bytes("/hold") + get_bytes("/hold"),
                                                 get_bytes("/big?bytes=100000")};
    client.send(beginnings[random() % beginnings.size()]);
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    leave(client, static_cast<Leaving>(random() % 3));
  }
  // Some may not even have been accepted yet.
  const auto nothing_left = [&] { return site.server().connections() == 0 && open_descriptors() == before; };
  EXPECT_TRUE(eventually(nothing_left)) << "seed " << kSeed;
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
}

}  // namespace
}  // namespace espalier
