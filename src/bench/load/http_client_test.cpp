#include "bench/load/http_client.h"

#include <gmock/gmock.h>

#include <optional>
#include <random>

#include "bench/load/testing/script_server.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kPatience{20'000};

struct Heard {
  int status = 0;
  std::string body = {};
  std::optional<std::string> problem = {};

  HttpCallEvents events() {
    return {.on_head = [this](int heard) { status = heard; },
            .on_body = [this](std::string_view bytes, LoadClock::time_point) { body += bytes; },
            .on_end = [this](const std::string& how) { problem = how; }};
  }
};

Heard ask(const ServerUrl& url, HttpCall call = {.method = "GET", .target = "/x"},
          std::chrono::milliseconds patience = kPatience) {
  HttpClient client(patience);
  Heard heard;
  client.call(url, std::move(call), heard.events());
  EXPECT_TRUE(client.run({}));
  EXPECT_TRUE(heard.problem.has_value());
  return heard;
}

TEST(HttpClient, SendsTheRequestAndTellsTheResponse) {
  std::string seen;
  ScriptServer server([&](const std::string& request) {
    seen = request;
    return response_of(201, "hello");
  });
  ServerUrl url = server.url();
  url.prefix = "/a";
  const Heard heard = ask(url, {.method = "POST", .target = "/v1/x", .body = "{}", .headers = {{"X-Key", "k"}}});
  EXPECT_EQ(heard.status, 201);
  EXPECT_EQ(heard.body, "hello");
  EXPECT_EQ(*heard.problem, "");
  EXPECT_THAT(seen, StartsWith("POST /a/v1/x HTTP/1.1\r\n"));
  for (const char* line : {"Host: 127.0.0.1:", "X-Key: k\r\n", "Content-Length: 2\r\n", "\r\n\r\n{}"})
    EXPECT_THAT(seen, HasSubstr(line));
}

TEST(HttpClient, ReadsChunksAndBodiesThatEndWithTheConnection) {
  ScriptServer chunked([](const std::string&) { return answer_stream(3); });
  const Heard stream = ask(chunked.url());
  EXPECT_EQ(*stream.problem, "");
  EXPECT_THAT(stream.body, HasSubstr("data: [DONE]\n\n"));
  ScriptServer endless([](const std::string&) { return std::string("HTTP/1.0 200 OK\r\n\r\nall of it"); });
  const Heard rest = ask(endless.url());
  EXPECT_EQ(*rest.problem, "");
  EXPECT_EQ(rest.body, "all of it");
}

TEST(HttpClient, AChunkIsToldWhenItHasComeAndNotWithTheNext) {
  const auto script = [](const std::string&) {
    return std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
  };
  ScriptServer server(script, ScriptServer::After::keep);
  HttpClient client(kPatience);
  Heard heard;
  HttpCallEvents events = heard.events();
  events.on_body = [&](std::string_view bytes, LoadClock::time_point) {
    heard.body += bytes;
    client.break_off();
  };
  client.call(server.url(), {.method = "GET", .target = "/"}, std::move(events));
  EXPECT_TRUE(client.run({}));
  EXPECT_EQ(heard.body, "hello");
  EXPECT_EQ(heard.problem, kBrokenOff);
}

TEST(HttpClient, WhateverGoesWrongIsAProblemInOneLine) {
  const auto problem = [](const std::string& bytes) {
    ScriptServer server([&](const std::string&) { return bytes; });
    return *ask(server.url()).problem;
  };
  EXPECT_THAT(problem("SSH-2.0-x\r\n\r\n"), HasSubstr("not HTTP"));
  EXPECT_THAT(problem("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), HasSubstr("in the middle"));
  EXPECT_THAT(problem("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), HasSubstr("in the middle"));
  EXPECT_THAT(problem("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), HasSubstr("not HTTP"));
  EXPECT_THAT(problem("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"), HasSubstr("not HTTP"));
  EXPECT_THAT(problem("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x')), HasSubstr("not HTTP"));
}

TEST(HttpClient, NobodyListeningAndNoSuchNameAreProblems) {
  int port = 0;
  {
    ScriptServer gone([](const std::string&) { return std::string("x"); });
    port = gone.url().port;
  }
  EXPECT_THAT(*ask({.host = "127.0.0.1", .port = port}).problem, HasSubstr("refused"));
  EXPECT_NE(*ask({.host = "no-such-name.invalid", .port = 80}).problem, "");
}

TEST(HttpClient, ASilentServerIsGivenUp) {
  ScriptServer server([](const std::string&) { return std::string(); });
  EXPECT_EQ(*ask(server.url(), {.method = "GET", .target = "/"}, std::chrono::milliseconds(100)).problem,
            "silent for 0.1 s");
}

TEST(HttpClient, WhatIsBrokenOffEndsAndWhatWasPlannedDoesNotHappen) {
  ScriptServer server([](const std::string&) { return std::string(); });
  HttpClient client(kPatience);
  Heard heard;
  bool happened = false;
  client.call(server.url(), {.method = "GET", .target = "/"}, heard.events());
  client.at(LoadClock::now() + std::chrono::hours(1), [&] { happened = true; });
  client.at(LoadClock::now() + std::chrono::milliseconds(20), [&] { client.break_off(); });
  EXPECT_TRUE(client.run({}));
  EXPECT_EQ(heard.problem, kBrokenOff);
  EXPECT_FALSE(happened);
}

TEST(HttpClient, ACancelledRunEndsEverything) {
  ScriptServer server([](const std::string&) { return std::string(); });
  HttpClient client(kPatience);
  std::vector<Heard> heard(5);
  for (Heard& each : heard) client.call(server.url(), {.method = "GET", .target = "/"}, each.events());
  EXPECT_FALSE(client.run([] { return true; }));
  for (const Heard& each : heard) EXPECT_EQ(each.problem, kBrokenOff);
}

TEST(HttpClient, DamagedResponsesNeverDoMoreThanFail) {
  const std::string whole = answer_stream(4);
  unsigned seed = 0;
  ScriptServer server([&](const std::string&) {
    std::mt19937 random(seed);
    std::string bytes = whole.substr(0, 1 + random() % whole.size());
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    return bytes;
  });
  for (seed = 0; seed < 300; ++seed)
    EXPECT_EQ(ask(server.url(), {.method = "GET", .target = "/"}, std::chrono::milliseconds(2000)).problem->find('\n'),
              std::string::npos)
        << "seed " << seed;
}

}  // namespace
}  // namespace espalier
