#include "serve/protocol/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

TEST(ApiError, BodyHasOpenAisFourMembers) {
  const json body = json::parse(error_json(invalid_request("n: expected 1", "n")));
  EXPECT_EQ(body, json::parse(R"({"error": {"message": "n: expected 1", "type": "invalid_request_error",
                                  "param": "n", "code": null}})"));
}

TEST(ApiError, APromptThatDoesNotFitTellsBothNumbers) {
  const ApiError error = prompt_too_long(9000, 8192, "messages");
  EXPECT_EQ(error.status, 400);
  const json body = json::parse(error_json(error))["error"];
  EXPECT_EQ(body["type"], "exceed_context_size_error");
  // Clients look for these words.
  EXPECT_THAT(body["message"].get<std::string>(), HasSubstr("prompt is too long"));
  EXPECT_THAT(body["message"].get<std::string>(), HasSubstr("exceeds the available context size"));
  EXPECT_EQ(body["n_prompt_tokens"], 9000);
  EXPECT_EQ(body["n_ctx"], 8192);
  EXPECT_EQ(body["param"], "messages");
}

TEST(ApiError, EveryStatusHasItsType) {
  const auto type = [](int status) { return std::string(name(http_error(status, "x").type)); };
  for (const int status : {400, 411, 413, 415, 431}) EXPECT_EQ(type(status), "invalid_request_error") << status;
  EXPECT_EQ(type(401), "authentication_error");
  EXPECT_EQ(type(403), "permission_error");
  EXPECT_EQ(type(404), "not_found_error");
  EXPECT_EQ(type(405), "not_found_error");
  EXPECT_EQ(type(408), "timeout_error");
  EXPECT_EQ(name(rate_limited(4, 2).type), "rate_limit_error");
  EXPECT_EQ(rate_limited(4, 2).status, 429);
  EXPECT_EQ(name(server_fault("x").type), "server_error");
  EXPECT_EQ(name(endpoint_off("/metrics", "--metrics").type), "not_supported_error");
  EXPECT_EQ(endpoint_off("/metrics", "--metrics").status, 501);
  EXPECT_EQ(name(unavailable("draining").type), "unavailable_error");
  EXPECT_EQ(unavailable("draining", 3).retry_after, 3);
}

TEST(ApiError, AnUnknownModelHasOpenAisCode) {
  const ApiError error = model_not_found("gpt-4", "smollm2");
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_EQ(error.message, R"(model: expected "smollm2", got "gpt-4")");
}

TEST(ApiError, MessagesAreOneShortLineOfUtf8WhateverIsInThem) {
  const std::string nasty = "a\nb\r\xff\xe2\x82 \x1b[1m\u2028" + std::string(10'000, 'x');
  const ApiError error = invalid_request(nasty, "p\n\xff");
  EXPECT_TRUE(is_utf8(error.message));
  EXPECT_LE(error.message.size(), kMostMessageBytes);
  EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  EXPECT_THAT(error.message, Not(HasSubstr("\x1b")));
  EXPECT_THAT(error.message, HasSubstr("a b \uFFFD\uFFFD "));
  EXPECT_EQ(error_json(error).find('\n'), std::string::npos);
  EXPECT_TRUE(json::accept(error_json(error)));
}

TEST(ApiError, ACutNeverSplitsACharacter) {
  for (std::size_t most = 3; most < 20; ++most) {
    const std::string line = one_line("日本語日本語", most);
    EXPECT_TRUE(is_utf8(line)) << most;
    EXPECT_LE(line.size(), most);
  }
}

ApiError seen_at_the_edge(auto&& thrown) {
  return api_error_of(std::make_exception_ptr(thrown), "chatcmpl-7");
}

TEST(ApiError, ExceptionsThatReachTheEdgeAreTheirsOrOurs) {
  EXPECT_EQ(seen_at_the_edge(model_not_found("a", "b")).status, 404);
  EXPECT_EQ(seen_at_the_edge(InputError("too long")).status, 400);
  EXPECT_EQ(seen_at_the_edge(InputError("too long")).message, "too long");
  for (const ApiError& error : {seen_at_the_edge(std::logic_error("secret")), seen_at_the_edge(DeviceError("secret")),
                                seen_at_the_edge(std::bad_alloc()), seen_at_the_edge(7)}) {
    EXPECT_EQ(error.status, 500);
    EXPECT_THAT(error.message, HasSubstr("chatcmpl-7"));
    EXPECT_THAT(error.message, Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace espalier
