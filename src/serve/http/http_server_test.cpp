// Requests and answers as they should be. Limits are in http_server_limits_test.cpp, clients that leave and servers
// that stop in http_server_clients_test.cpp, bytes that are no requests in http_server_framing_test.cpp.
#include "serve/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "serve/http/testing/fake_site.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

TEST(HttpServer, AnswersAGet) {
  const FakeSite site;
  const RawAnswer answer = site.ask(get_bytes("/health"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "ok");
  EXPECT_EQ(answer.header("Content-Type"), "text/plain");
  EXPECT_EQ(answer.header("Content-Length"), "2");
  EXPECT_EQ(answer.header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(answer.header("Cache-Control"), "no-store");
  EXPECT_EQ(answer.header("Connection"), "");
  EXPECT_THAT(answer.header("X-Request-Id"), MatchesRegex("[0-9a-f]{24}"));
}

TEST(HttpServer, TakesBodiesOfEverySize) {
  const FakeSite site;
  RawClient client = site.client();
  for (const std::size_t size : {0u, 1u, 16383u, 16384u, 65536u, 65537u, 1000000u}) {
    const std::string body(size, 'b');
    client.send(post_bytes("/echo", body));
    EXPECT_TRUE(client.read_answer().body == body) << size;
  }
}

TEST(HttpServer, TakesBytesOneByOne) {
  const FakeSite site;
  RawClient client = site.client();
  for (const char byte : post_bytes("/echo", "slowly") + post_bytes("/echo", "again")) client.send({&byte, 1});
  EXPECT_EQ(client.read_answer().body, "slowly");
  EXPECT_EQ(client.read_answer().body, "again");
}

TEST(HttpServer, PassesOverBlankLinesBeforeARequest) {
  const FakeSite site;
  RawClient client = site.client();
  client.send("\r\n\r\n" + post_bytes("/echo", "one") + "\r\n");
  EXPECT_EQ(client.read_answer().body, "one");
  for (const char byte : "\r\n" + post_bytes("/echo", "two")) client.send({&byte, 1});
  EXPECT_EQ(client.read_answer().body, "two");
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  FakeSite site;
  RawClient client = site.client();
  client.send(get_bytes("/hold") + post_bytes("/echo", "second") + get_bytes("/health"));
  HeldRequest first = site.held();
  EXPECT_EQ(site.handled(), 1);
  first.reply->send({.body = "first"});
  EXPECT_EQ(client.read_answer().body, "first");
  EXPECT_EQ(client.read_answer().body, "second");
  EXPECT_EQ(client.read_answer().body, "ok");
}

TEST(HttpServer, ShowsTheApplicationTheWholeRequest) {
  FakeSite site;
  RawClient client = site.client();
  client.send(post_bytes("/hold?a=%31&b", "the body", "X-Thing: x\r\n"));
  const HeldRequest held = site.held();
  EXPECT_EQ(held.request.body, "the body");
  EXPECT_EQ(held.request.head.method, "POST");
  EXPECT_EQ(held.request.head.target.path, "/hold");
  EXPECT_EQ(held.request.head.target.parameter("a"), "1");
  EXPECT_EQ(held.request.head.header("x-thing"), "x");
  EXPECT_EQ(held.request.head.key, -1);
  held.reply->send({});
  EXPECT_EQ(client.read_answer().header("X-Request-Id"), held.request.head.id);
}

TEST(HttpServer, KeepsOrClosesTheConnectionAsTheClientLikes) {
  const FakeSite site;
  RawClient kept = site.client();
  kept.send(get_bytes("/health"));
  EXPECT_EQ(kept.read_answer().header("Connection"), "");
  kept.send(get_bytes("/health", "Connection: close\r\n") + get_bytes("/health"));
  EXPECT_EQ(kept.read_answer().header("Connection"), "close");
  EXPECT_EQ(kept.read_to_end(), "");
  RawClient old = site.client();
  old.send("GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(old.read_answer().header("Connection"), "keep-alive");
  old.send("GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(old.read_answer().header("Connection"), "close");
  EXPECT_EQ(old.read_to_end(), "");
}

TEST(HttpServer, HeadIsGetWithoutABody) {
  const FakeSite site;
  RawClient client = site.client();
  client.send("HEAD /big?bytes=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n" + get_bytes("/health"));
  const RawAnswer answer = client.read_answer(true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("Content-Length"), "1000");
  EXPECT_EQ(client.read_answer().body, "ok");
  client.send("HEAD /echo HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_answer(true).status, 405);
}

TEST(HttpServer, AnswersExpectationsBeforeTheBodyComes) {
  const FakeSite site;
  RawClient client = site.client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 100);
  client.send("body");
  EXPECT_EQ(client.read_answer().body, "body");
  client.send(post_bytes("/echo", "there already", "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.read_answer().body, "there already");
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_answer().status, 415);
}

TEST(HttpServer, IgnoresUpgrades) {
  const FakeSite site;
  const RawAnswer answer = site.ask(
      get_bytes("/health",
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "ok");
}

TEST(HttpServer, RefusesBeforeTheBodyIsRead) {
  const FakeSite site;
  // The bodies are announced and never sent.
  const auto announced = [&](std::string_view path, std::string_view headers) {
    return site.ask(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, headers));
  };
  const std::string json = "Content-Type: application/json\r\n";
  const RawAnswer unknown = announced("/nowhere", json + "Content-Length: 99\r\n");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, "404 no such path");
  EXPECT_EQ(unknown.header("Connection"), "close");
  EXPECT_EQ(unknown.header("Content-Type"), "application/json");
  const RawAnswer method = announced("/health", json + "Content-Length: 99\r\n");
  EXPECT_EQ(method.status, 405);
  EXPECT_EQ(method.header("Allow"), "GET, HEAD");
  EXPECT_EQ(announced("/echo", json).status, 411);
  EXPECT_EQ(announced("/echo", json + "Content-Length: 99999999\r\n").status, 413);
  EXPECT_EQ(announced("/echo", "Content-Length: 99\r\n").status, 415);
  EXPECT_EQ(announced("/echo", "Content-Type: text/plain\r\nContent-Length: 99\r\n").status, 415);
  EXPECT_EQ(announced("/echo", json + "Content-Length: 99\r\nExpect: more\r\n").status, 417);
  EXPECT_THAT(site.refused(), ElementsAre(404, 405, 411, 413, 415, 415, 417));
  EXPECT_EQ(site.handled(), 0);
}

TEST(HttpServer, KeepsTheConnectionAfterARefusalWithoutABody) {
  const FakeSite site;
  RawClient client = site.client();
  client.send(get_bytes("/nowhere") + get_bytes("/health"));
  EXPECT_EQ(client.read_answer().status, 404);
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST(HttpServer, DeliversARefusalToAClientThatIsStillSending) {
  const FakeSite site;
  RawClient client = site.client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n");
  client.send(std::string(8000000, 'x'));
  EXPECT_EQ(client.read_answer().status, 413);
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, AsksForAKey) {
  HttpOptions options;
  options.keys.add("sk-one", "test");
  options.keys.add("sk-two", "test");
  FakeSite site(options);
  const RawAnswer none = site.ask(post_bytes("/echo", "x"));
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.header("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(site.ask(get_bytes("/nowhere")).status, 401);
  EXPECT_EQ(site.ask(post_bytes("/echo", "x", "Authorization: Bearer sk-three\r\n")).status, 401);
  EXPECT_EQ(site.ask(post_bytes("/echo", "x", "Authorization: Bearer sk-one\r\n")).status, 200);
  EXPECT_EQ(site.ask(get_bytes("/nowhere", "X-Api-Key: sk-one\r\n")).status, 404);
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
  RawClient client = site.client();
  client.send(get_bytes("/hold", "X-Api-Key: sk-two\r\n"));
  const HeldRequest held = site.held();
  EXPECT_EQ(held.request.head.key, 1);
}

TEST(HttpServer, KeepsBrowsersToTheRules) {
  HttpOptions options;
  options.keys.add("sk-one", "test");
  options.browsers.cors = parse_cors_origins("https://page.example");
  const FakeSite site(options);
  EXPECT_EQ(site.ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(site.ask("GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403);
  EXPECT_EQ(site.ask(get_bytes("/health", "Origin: https://evil.example\r\n")).status, 403);
  EXPECT_EQ(site.ask(get_bytes("/health", "Origin: https://page.example\r\n")).header("Access-Control-Allow-Origin"),
            "https://page.example");
  const RawAnswer refused = site.ask(post_bytes("/echo", "", "Origin: https://page.example\r\n"));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.header("Access-Control-Allow-Origin"), "https://page.example");
  const RawAnswer preflight = site.ask(
      "OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: https://page.example\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.header("Access-Control-Allow-Headers"), "authorization");
  EXPECT_EQ(preflight.header("Access-Control-Allow-Origin"), "https://page.example");
  EXPECT_EQ(site.ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 204);
}

TEST(HttpServer, AnswersForAnApplicationThatFails) {
  FakeSite site;
  for (const char* path : {"/throw", "/drop"}) {
    RawClient client = site.client();
    client.send(post_bytes(path, "{}"));
    const RawAnswer answer = client.read_answer();
    EXPECT_EQ(answer.status, 500) << path;
    EXPECT_EQ(answer.body, "500 the server failed to answer request " + answer.header("X-Request-Id"));
    client.send(get_bytes("/health"));
    EXPECT_EQ(client.read_answer().status, 200);
  }
  EXPECT_EQ(site.ask(get_bytes("/broken")).status, 500);
  EXPECT_THAT(site.refused(), ElementsAre(500, 500, 500));
}

TEST(HttpServer, StreamsEventsAsTheyCome) {
  FakeSite site;
  RawClient client = site.client();
  client.send(post_bytes("/hold", "{}") + get_bytes("/health"));
  HeldRequest held = site.held();
  EXPECT_TRUE(held.reply->begin_events({{"X-Request-Id", "chatcmpl-7"}}));
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(head, HasSubstr("Cache-Control: no-cache\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Accel-Buffering: no\r\n"));
  EXPECT_THAT(head, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Request-Id: chatcmpl-7\r\n"));
  held.reply->write("data: 1\n\n");
  EXPECT_EQ(client.read_until("data: 1\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  held.reply->write("");
  held.reply->write("data: [DONE]\n\n");
  held.reply->finish();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return held.reply->waiting_bytes() == 0; }));
  EXPECT_EQ(client.read_answer().body, "ok");
}

TEST(HttpServer, FillsSilenceWithComments) {
  FakeSite site(on_any_port({.silence_time = HttpLimits::Time(20)}));
  RawClient client = site.client();
  client.send(post_bytes("/hold", "{}"));
  HeldRequest held = site.held();
  held.reply->begin_events();
  client.read_until("\r\n\r\n");
  EXPECT_EQ(client.read_until(":\n\n\r\n"), "3\r\n:\n\n\r\n");
  EXPECT_EQ(client.read_until(":\n\n\r\n"), "3\r\n:\n\n\r\n");
  held.reply->write("data: 1\n\n");
  EXPECT_THAT(client.read_until("data: 1\n\n\r\n"), HasSubstr("9\r\ndata: 1\n\n\r\n"));
}

TEST(HttpServer, StreamsToHttp10UntilTheConnectionEnds) {
  FakeSite site;
  RawClient client = site.client();
  client.send("GET /hold HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
  HeldRequest held = site.held();
  held.reply->begin_events();
  held.reply->write("data: 1\n\n");
  held.reply->finish();
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_EQ(answer.header("Transfer-Encoding"), "");
  EXPECT_EQ(answer.body, "data: 1\n\n");
}

TEST(HttpServer, BreaksAStreamThatNobodyWillFinish) {
  FakeSite site;
  RawClient client = site.client();
  client.send(post_bytes("/hold", "{}"));
  HeldRequest held = site.held();
  held.reply->begin_events();
  held.reply->write("data: 1\n\n");
  client.read_until("data: 1\n\n\r\n");
  held.reply.reset();
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
}

TEST(HttpServer, TakesWritesFromSeveralThreads) {
  FakeSite site;
  RawClient client = site.client();
  client.send(post_bytes("/hold", "{}"));
  HeldRequest held = site.held();
  held.reply->begin_events();
  constexpr int kThreads = 4;
  constexpr int kEvents = 300;
  std::vector<std::thread> writers;
  for (int thread = 0; thread < kThreads; ++thread)
    writers.emplace_back([&held, thread] {
      for (int i = 0; i < kEvents; ++i) held.reply->write(fmt::format("{} {}\n", thread, i));
    });
  std::thread finisher([&] {
    for (std::thread& writer : writers) writer.join();
    held.reply->finish();
  });
  const RawAnswer answer = client.read_answer();
  finisher.join();
  EXPECT_TRUE(answer.complete);
  std::vector<int> next(kThreads, 0);
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const std::string line(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(line.size() + 1);
    const auto thread = static_cast<std::size_t>(line[0] - '0');
    ASSERT_EQ(line, fmt::format("{} {}", thread, next[thread]));
    ++next[thread];
  }
  EXPECT_THAT(next, testing::Each(kEvents));
}

TEST(HttpServer, GivesEveryRequestAnIdOfItsOwn) {
  const FakeSite site;
  RawClient client = site.client();
  client.send(get_bytes("/health") + get_bytes("/health") + "garbage\r\n\r\n");
  const std::string first = client.read_answer().header("X-Request-Id");
  const std::string second = client.read_answer().header("X-Request-Id");
  const std::string third = client.read_answer().header("X-Request-Id");
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
  EXPECT_EQ(third.size(), 24u);
}

TEST(HttpServer, ListensWhereItIsTold) {
  for (const std::string host : {"localhost", "127.0.0.1", "::1", "[::1]"}) {
    HttpOptions options;
    options.host = host;
    try {
      const FakeSite site(options);
      const std::string address = host == "localhost" || host == "127.0.0.1" ? "127.0.0.1" : "::1";
      RawClient client(site.port(), address);
      client.send(get_bytes("/health"));
      EXPECT_EQ(client.read_answer().body, "ok") << host;
    } catch (const InputError& error) {
      // A machine without IPv6.
      EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("does not have this address"), HasSubstr("not supported")));
    }
  }
}

TEST(HttpServer, TellsItsAddresses) {
  FakeSite site;
  EXPECT_TRUE(site.server().is_loopback());
  EXPECT_THAT(site.server().urls(), ElementsAre(fmt::format("http://127.0.0.1:{}", site.port())));
  HttpOptions options;
  options.host = "0.0.0.0";
  FakeSite open(options);
  EXPECT_FALSE(open.server().is_loopback());
  EXPECT_EQ(open.ask("GET /health HTTP/1.1\r\nHost: anything.example\r\n\r\n").status, 200);
}

TEST(HttpServer, APortThatIsTakenIsOneClearLine) {
  const FakeSite site;
  HttpOptions options;
  options.port = site.port();
  try {
    const HttpServer second(options);
    FAIL() << "two servers on one port";
  } catch (const InputError& error) {
    EXPECT_EQ(
        std::string(error.what()),
        fmt::format("--port {}: another program listens on 127.0.0.1 already; expected a free port", site.port()));
  }
}

}  // namespace
}  // namespace espalier
