#include "bench/load/load_run.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "base/error.h"
#include "bench/load/load_benchmark.h"
#include "bench/load/testing/script_server.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

LoadPrompts made() {
  return LoadPrompts({.seed = 1}, {.questions = {"Why?"}, .readings = {"A text."}});
}

LoadRun run(const ServerUrl& url, LoadShape shape, LoadSettings settings, const std::function<bool()>& cancelled = {}) {
  const LoadTarget target{.url = url, .model = "m"};
  const LoadPrompts prompts = made();
  return run_load({target, settings, prompts, shape, 3}, cancelled);
}

TEST(LoadRun, EveryUserSendsItsRequestsAndNoTwoAreAlike) {
  std::set<std::string> bodies;
  ScriptServer server([&](const std::string& request) {
    bodies.insert(request.substr(request.find("\r\n\r\n")));
    return answer_stream(6);
  });
  const LoadRun load = run(server.url(), {.users = 4}, {.tokens = 6, .requests = 3});
  EXPECT_EQ(load.answers.size(), 12u);
  EXPECT_TRUE(std::ranges::all_of(load.answers, &AnswerRecord::complete)) << load.answers[0].problem;
  EXPECT_FALSE(load.cancelled);
  EXPECT_EQ(load.answers[0].tokens, 6);
  EXPECT_GT(load.seconds, 0);
  EXPECT_EQ(server.requests(), 12);
  EXPECT_EQ(bodies.size(), 12u);
}

TEST(LoadRun, InTheOpenLoopRequestsCountFromWhenTheyWereDue) {
  ScriptServer server([&](const std::string&) { return answer_stream(2); });
  const LoadRun load = run(server.url(), {.rate = 200}, {.tokens = 2, .requests = 20});
  EXPECT_EQ(load.answers.size(), 20u);
  EXPECT_TRUE(std::ranges::is_sorted(load.answers, {}, &AnswerRecord::sent));
  for (const AnswerRecord& answer : load.answers) EXPECT_TRUE(answer.complete()) << answer.problem;
}

TEST(LoadRun, AServerThatFailsNowAndThenLosesThoseRequests) {
  int count = 0;
  ScriptServer server([&](const std::string&) {
    return ++count % 3 == 0 ? response_of(503, R"({"error":{"message":"full"}})") : answer_stream(2);
  });
  const LoadRun load = run(server.url(), {.users = 1}, {.tokens = 2, .requests = 6});
  EXPECT_EQ(load.answers.size(), 6u);
  EXPECT_EQ(std::ranges::count_if(load.answers, &AnswerRecord::complete), 4);
  const LoadFigures figures = figures_of(std::vector{load}, 2);
  EXPECT_EQ(figures.failed, 2);
  EXPECT_EQ(figures.problem, "status 503: \"full\"");
}

TEST(LoadRun, ACutStreamIsAFailedRequest) {
  const std::string whole = answer_stream(4);
  ScriptServer server([&](const std::string&) { return whole.substr(0, whole.size() / 2); });
  const LoadRun load = run(server.url(), {.users = 1}, {.tokens = 4, .requests = 1});
  ASSERT_EQ(load.answers.size(), 1u);
  EXPECT_EQ(load.answers[0].problem, "the server closed the connection in the middle");
}

TEST(LoadRun, ACancelledLoadHasWhatWasMeasured) {
  std::atomic<int> count = 0;
  ScriptServer server([&](const std::string&) { return ++count > 3 ? std::string() : answer_stream(2); });
  const LoadRun load = run(server.url(), {.users = 2}, {.tokens = 2, .requests = 100}, [&] { return count > 4; });
  EXPECT_TRUE(load.cancelled);
  EXPECT_EQ(std::ranges::count_if(load.answers, &AnswerRecord::complete), 3);
  EXPECT_TRUE(std::ranges::all_of(load.answers, [](const AnswerRecord& answer) { return answer.problem.empty(); }));
}

TEST(LoadBenchmark, ServersTakeTurnsAndTheOtherOneBeginsTheNextRound) {
  std::mutex mutex;
  std::string order;
  const auto script = [&](char name) {
    return [&, name](const std::string& request) {
      if (request.starts_with("GET")) return models_response();
      const std::lock_guard lock(mutex);
      order += name;
      return answer_stream(2);
    };
  };
  ScriptServer a(script('a')), b(script('b'));
  LoadPlan plan{.targets = {{.url = a.url()}, {.url = b.url()}}, .shapes = {{.users = 1}}, .rounds = 3};
  plan.settings = {.tokens = 2, .requests = 1};
  const LoadPrompts prompts = made();
  const LoadResult result = run_load_benchmark(plan, prompts, {});
  EXPECT_EQ(order,
            "ab"
            "abbaab");  // warming up, then the rounds
  ASSERT_EQ(result.shapes.size(), 1u);
  EXPECT_EQ(result.shapes[0].figures[0].tokens_per_second.size(), 3u);
  EXPECT_TRUE(speed_ratio(result.shapes[0]));
  EXPECT_FALSE(result.all_failed());
  EXPECT_EQ(result.plan.targets[1].owner, "somebody");
}

TEST(LoadBenchmark, AServerThatAnswersNothingIsToldAtOnce) {
  ScriptServer server([&](const std::string& request) {
    return request.starts_with("GET") ? models_response() : response_of(200, "hello", "text/plain");
  });
  const LoadPrompts prompts = made();
  try {
    run_load_benchmark({.targets = {{.url = server.url()}}, .shapes = {{.users = 1}}}, prompts, {});
    ADD_FAILURE();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no event stream"));
  }
}

}  // namespace
}  // namespace espalier
