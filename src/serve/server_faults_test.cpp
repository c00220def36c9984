// A whole server whose memory runs out somewhere: an exception at every stage of a request's life, from its first byte
// to the last of its answer, on every thread that has to do with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/testing/failing_memory.h"
#include "base/testing/sanitized.h"
#include "engine/testing/tiny_model.h"
#include "serve/http/testing/fake_site.h"
#include "serve/server.h"

namespace espalier {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::StartsWith;

ServerOptions tiny_server() {
  ServerOptions options;
  options.http = on_any_port();
  options.http.limits.silence_time = HttpLimits::Time(20);
  options.model.engine.model = kTinyModel;
  options.model.engine.threads = 1;
  options.model.drafting = plan_drafting({.draft = "ngram"}, {});
  options.model.parallel = 2;
  options.model.dump_folder = "/nonexistent";  // dumps are looked at elsewhere
  options.application.metrics = true;
  return options;
}

class TestedServer {
 public:
  TestedServer()
      : server_(tiny_server(), listener_,
                {.on_ready = [this] { opened_.set_value(true); },
                 .on_failed =
                     [this](std::exception_ptr) {
                       if (!ready()) opened_.set_value(false);
                     },
                 .on_ended = [this] { ended_.set_value(); }}) {
    open_.wait();
    const std::string url = server_.urls().at(0);
    port_ = std::stoi(url.substr(url.rfind(':') + 1));
  }

  // Its model is there.
  bool ready() const { return open_.wait_for(std::chrono::seconds(0)) == std::future_status::ready && open_.get(); }
  RawClient client() const { return RawClient(port_); }
  RawAnswer ask(const std::string& bytes) const {
    RawClient asking = client();
    asking.send(bytes);
    return asking.read_answer();
  }
  void drain() { server_.drain(std::chrono::seconds(20)); }
  // Ends, and says whether all was well.
  bool end() {
    drain();
    ended_.get_future().wait();
    return server_.finish();
  }

 private:
  Listener listener_;
  std::promise<bool> opened_;
  std::promise<void> ended_;
  std::shared_future<bool> open_ = opened_.get_future().share();
  Server server_;
  int port_ = 0;
};

// Everything that can be asked of an answer.
std::string whole_request() {
  return post_bytes("/v1/completions",
                    R"({"prompt": "once upon a time there was", "seed": 5, "max_tokens": 6, "n": 2, "temperature": 0.7,
                        "ignore_eos": true, "logprobs": 2, "echo": true, "receipt": true, "rounds": true,
                        "metrics": true, "return_token_ids": true, "stop": ["never"], "cache_salt": "salt"})");
}
std::string stream_request(int tokens = 6) {
  json body{{"messages", json::array({{{"role", "user"}, {"content", "hello there, hello there"}}})},
            {"seed", 7},
            {"max_tokens", tokens},
            {"ignore_eos", true},
            {"logprobs", true},
            {"top_logprobs", 2},
            {"receipt", true},
            {"stream", true},
            {"stream_options", {{"include_usage", true}}}};
  return post_bytes("/v1/chat/completions", body.dump());
}

// What a client was told: status and texts, or "error" where that was the end.
std::string told(const RawAnswer& answer) {
  const bool streams = answer.header("Content-Type").find("event-stream") != std::string::npos;
  if (answer.status == 200 && streams && !answer.complete) return "broken off";
  if (answer.status == 0 || !answer.complete) return "nothing";
  std::string text = std::to_string(answer.status);
  const auto error = [](const json& body) {
    return body.at("error").at("type") == "server_error" ? std::string("error") : body.dump();
  };
  if (!streams) {
    const json body = json::parse(answer.body);
    if (answer.status != 200) return error(body);
    for (const json& choice : body.at("choices")) text += "|" + choice.at("text").get<std::string>();
    return text;
  }
  EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
  for (std::size_t at = answer.body.find("data: {"); at != std::string::npos;
       at = answer.body.find("data: {", at + 1)) {
    const json event = json::parse(answer.body.substr(at + 6, answer.body.find('\n', at) - at - 6));
    if (event.contains("error")) return error(event);
    for (const json& choice : event.at("choices"))
      if (choice.at("delta").contains("content") && choice["delta"]["content"].is_string())
        text += choice["delta"]["content"].get<std::string>();
  }
  return text;
}

// A connection that fails in the midst of a stream can say no more than that: the stream has no end.
bool in_good_order(const std::string& said, const std::string& expected) {
  return said == expected || said == "error" || said == "broken off";
}

void expect_clean(const TestedServer& server) {
  const auto settled = [&] {
    const std::string metrics = server.ask(get_bytes("/metrics")).body;
    return metrics.find("espalier_num_requests_running 0\n") != std::string::npos &&
           metrics.find("espalier_num_requests_waiting 0\n") != std::string::npos &&
           metrics.find("espalier_kv_blocks{state=\"held\"} 0\n") != std::string::npos;
  };
  EXPECT_TRUE(eventually(settled)) << server.ask(get_bytes("/metrics")).body;
}

using Outcomes = std::map<std::string, int>;

// Asks while the n-th allocation fails, for every so many n until none does any more; a neighbour is answered
// meanwhile. What both are told is whole, or an error in good order; behind it the server answers as before.
Outcomes fail_everywhere(const std::string& asked) {
  constexpr std::int64_t kSteps = kSanitized ? 197 : 23;
  TestedServer server;
  const std::string expected = told(server.ask(asked)), beside_expected = told(server.ask(stream_request(12)));
  EXPECT_THAT(expected, StartsWith("200"));
  Outcomes outcomes;
  bool failed = true;
  for (std::int64_t n = 1; failed && !::testing::Test::HasFailure(); n += kSteps) {
    RawClient neighbour = server.client(), asking = server.client();
    neighbour.send(stream_request(12));
    EXPECT_TRUE(eventually([&] { return neighbour.readable(); }));
    asking.send(get_bytes("/health"));  // so that it is accepted
    asking.read_answer();
    std::string said, beside;
    {
      const FailingMemory memory(n);
      asking.send(asked);
      said = told(asking.read_answer());
      beside = told(neighbour.read_answer());
      failed = memory.failed();
    }
    ++outcomes[said == expected ? "as ever" : said];
    EXPECT_TRUE(in_good_order(said, expected)) << n << ": " << said;
    EXPECT_TRUE(in_good_order(beside, beside_expected)) << n << ": " << beside;
    EXPECT_EQ(told(server.ask(asked)), expected) << n;
    expect_clean(server);
  }
  EXPECT_TRUE(server.end());
  return outcomes;
}

// How often the neighbour is hit in its stead, or whoever does the work of both, is a matter of timing.
TEST(ServerFaults, MemoryThatRunsOutAnywhereInARequestsLifeIsAnErrorInGoodOrder) {
  const Outcomes outcomes = fail_everywhere(whole_request());
  EXPECT_EQ(outcomes.count("error"), 1u) << json(outcomes).dump();
  EXPECT_EQ(outcomes.count("broken off"), 0u);
}

TEST(ServerFaults, LikewiseInAStream) {
  const Outcomes outcomes = fail_everywhere(stream_request());
  EXPECT_EQ(outcomes.count("error"), 1u) << json(outcomes).dump();
}

TEST(ServerFaults, LikewiseInAnswersThatNeedNoStep) {
  TestedServer server;
  const std::string messages = R"({"messages": [{"role": "user", "content": "hello there"}]})";
  for (const std::string& asked :
       {get_bytes("/health"), get_bytes("/"), get_bytes("/openapi.json"), get_bytes("/v1/models"), get_bytes("/props"),
        get_bytes("/slots"), get_bytes("/metrics"), post_bytes("/tokenize", R"({"content": "hello there"})"),
        post_bytes("/detokenize", R"({"tokens": [5, 6, 7]})"), post_bytes("/apply-template", messages),
        post_bytes("/v1/chat/completions/input_tokens", messages)}) {
    int errors = 0;
    bool failed = true;
    for (std::int64_t n = 1; failed && !HasFailure(); n += 1 + n / 16) {
      RawClient asking = server.client();
      asking.send(get_bytes("/health"));
      asking.read_answer();
      const FailingMemory memory(n);
      asking.send(asked);
      const RawAnswer answer = asking.read_answer();
      failed = memory.failed();
      errors += answer.status == 500 ? 1 : 0;
      EXPECT_TRUE(answer.complete && (answer.status == 200 || answer.status == 500)) << n << " " << asked;
    }
    EXPECT_GT(errors, 0) << asked;
    EXPECT_EQ(server.ask(asked).status, 200) << asked;
  }
  EXPECT_TRUE(server.end());
}

TEST(ServerFaults, AServerWhoseMemoryRunsOutWhileItLoadsSaysSoAndEnds) {
  bool failed = true;
  for (std::int64_t n = 1; failed && !HasFailure(); n += 1 + n / (kSanitized ? 1 : 3)) {
    std::optional<FailingMemory> memory(n);
    TestedServer server;
    failed = memory->failed();
    memory.reset();
    EXPECT_EQ(server.ask(get_bytes("/health")).status, server.ready() ? 200 : 503) << n;
    EXPECT_EQ(server.end(), server.ready()) << n;
  }
}

TEST(ServerFaults, AServerWhoseMemoryRunsOutWhileItEndsStillEnds) {
  bool failed = true;
  for (std::int64_t n = 1; failed && !HasFailure(); n += kSanitized ? 97 : 11) {
    TestedServer server;
    RawClient running = server.client();
    running.send(stream_request(12));
    EXPECT_TRUE(eventually([&] { return running.readable(); }));
    {
      const FailingMemory memory(n);
      server.drain();
      EXPECT_NE(told(running.read_answer()), "nothing") << n;
      failed = memory.failed();
    }
    server.end();
  }
}

}  // namespace
}  // namespace espalier
