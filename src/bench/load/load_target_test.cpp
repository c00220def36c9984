#include "bench/load/load_target.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/load/testing/script_server.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kLongEnough{20'000};

TEST(LoadTarget, ARequestIsAStreamedGreedyAnswerOfExactlySoManyTokens) {
  const LoadTarget target{.key = "k", .speculation = "none", .model = "m"};
  const HttpCall call = answer_call(target, LoadApi::chat, {.shared = "s", .text = "t"}, 7);
  EXPECT_EQ(call.target, "/v1/chat/completions");
  const auto body = nlohmann::json::parse(call.body);
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["messages"].size(), 2u);
  EXPECT_EQ(body["messages"][0]["role"], "system");
  EXPECT_EQ(body["max_tokens"], 7);
  EXPECT_EQ(body["ignore_eos"], true);
  EXPECT_EQ(body["stream_options"]["include_usage"], true);
  EXPECT_EQ(body["speculation"]["draft"], "none");
  EXPECT_THAT(call.headers, ::testing::Contains(std::pair<std::string, std::string>("Authorization", "Bearer k")));
}

TEST(LoadTarget, CompletionsHaveOneTextAndNothingThatWasNotAskedFor) {
  const HttpCall call = answer_call({}, LoadApi::completions, {.shared = "s", .text = "t\xff"}, 7);
  const auto body = nlohmann::json::parse(call.body);
  EXPECT_EQ(call.target, "/v1/completions");
  EXPECT_EQ(body["prompt"], "s\n\nt\uFFFD");
  EXPECT_FALSE(body.contains("speculation"));
  for (const auto& [name, value] : call.headers) EXPECT_NE(name, "Authorization");
}

TEST(LoadTarget, AServerSaysWhichModelItHas) {
  ScriptServer server([](const std::string&) { return models_response(); });
  LoadTarget target{.url = server.url()};
  EXPECT_TRUE(meet_server(target, kLongEnough, {}));
  EXPECT_EQ(target.model, "tiny");
  EXPECT_EQ(target.owner, "somebody");
}

template <typename Error>
std::string refusal(const std::string& response) {
  ScriptServer server([&](const std::string&) { return response; });
  LoadTarget target{.url = server.url()};
  try {
    meet_server(target, kLongEnough, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LoadTarget, ServersThatCannotBeMeasuredAreToldInOneLine) {
  const std::string error = R"({"error":{"message":"because"}})";
  EXPECT_THAT(refusal<InputError>(response_of(401, error)), HasSubstr("does not let us in (status 401): \"because\""));
  EXPECT_THAT(refusal<DeviceError>(response_of(503, error)), HasSubstr("not ready (status 503): \"because\""));
  EXPECT_THAT(refusal<InputError>(response_of(404, "<html>\nno</html>")), HasSubstr("not an OpenAI server"));
  for (const char* body : {"", "[]", "{}", "null", "\xff", R"({"data":{}})", R"({"data":[]})", R"({"data":[7]})",
                           R"({"data":[{"id":3}]})"})
    EXPECT_THAT(refusal<InputError>(response_of(200, body)), HasSubstr("lists no model")) << body;
  EXPECT_THAT(refusal<DeviceError>("SMTP ready\r\n\r\n"), HasSubstr("cannot be reached: not HTTP"));
}

}  // namespace
}  // namespace espalier
