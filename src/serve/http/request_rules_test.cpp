#include "serve/http/request_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace espalier {
namespace {

HttpHead posted(std::vector<HttpHeader> headers) {
  HttpHead head;
  head.method = "POST";
  head.headers = std::move(headers);
  head.headers.push_back({"Host", "localhost"});
  return head;
}

int framing_status(const HttpHead& head) {
  const auto refusal = refuse_framing(head);
  return refusal ? refusal->status : 0;
}

int body_status(const HttpHead& head, std::size_t limit = 100) {
  HttpLimits limits;
  limits.body_bytes = limit;
  const auto refusal = refuse_body(head, limits);
  return refusal ? refusal->status : 0;
}

TEST(RequestRules, AnyTransferEncodingIsRefused) {
  for (const char* value : {"chunked", "identity", "gzip, chunked", "", "xchunked"})
    EXPECT_EQ(framing_status(posted({{"transfer-encoding", value}})), 411) << value;
}

TEST(RequestRules, ALengthIsOneRowOfDigits) {
  for (const char* value : {"0", "5", "0005", "999999999999999999"})
    EXPECT_EQ(framing_status(posted({{"Content-Length", value}})), 0) << value;
  for (const char* value : {"", "+5", "-5", "5,5", "5, 5", "5 ", "0x5", "1000000000000000000", "18446744073709551621"})
    EXPECT_EQ(framing_status(posted({{"Content-Length", value}})), 400) << value;
  EXPECT_EQ(framing_status(posted({{"Content-Length", "5"}, {"content-length", "5"}})), 400);
}

TEST(RequestRules, ThereIsOneHost) {
  EXPECT_EQ(framing_status(posted({})), 0);
  EXPECT_EQ(framing_status(posted({{"Host", "localhost"}})), 400);
  HttpHead head;
  EXPECT_EQ(framing_status(head), 400);
  head.minor_version = 0;
  EXPECT_EQ(framing_status(head), 0);
}

TEST(RequestRules, APostHasALengthWithinTheLimitAndIsJson) {
  const auto with = [](const char* length, const char* type) {
    return posted({{"Content-Length", length}, {"Content-Type", type}});
  };
  EXPECT_EQ(body_status(posted({{"Content-Type", "application/json"}})), 411);
  EXPECT_EQ(body_status(with("99", "application/json")), 0);
  EXPECT_EQ(body_status(with("100", "application/json")), 0);
  EXPECT_EQ(body_status(with("101", "application/json")), 413);
  EXPECT_EQ(body_status(with("999999999999999999", "application/json")), 413);
  EXPECT_EQ(body_status(with("5", "Application/JSON ; charset=utf-8")), 0);
  for (const char* type : {"text/plain", "", "application/jsonx", "application/x-www-form-urlencoded", "text/json",
                           "text/plain; application/json"})
    EXPECT_EQ(body_status(with("5", type)), 415) << type;
}

TEST(RequestRules, AGetMayHaveABodyOfAnyTypeWithinTheLimit) {
  HttpHead head;
  head.method = "GET";
  EXPECT_EQ(body_status(head), 0);
  head.headers = {{"Content-Length", "100"}};
  EXPECT_EQ(body_status(head), 0);
  head.headers = {{"Content-Length", "101"}};
  EXPECT_EQ(body_status(head), 413);
}

TEST(RequestRules, OnlyOneExpectationIsKnown) {
  HttpHead head;
  EXPECT_FALSE(expects_continue(head));
  head.headers = {{"Expect", "100-Continue"}};
  EXPECT_TRUE(expects_continue(head));
  EXPECT_EQ(body_status(head), 0);
  head.headers = {{"Expect", "a pony"}};
  EXPECT_EQ(body_status(head), 417);
}

TEST(RequestRules, ConnectionsAreKeptUnlessSomeoneSaysOtherwise) {
  HttpHead head;
  EXPECT_TRUE(wants_keep_alive(head));
  head.headers = {{"Connection", "Close"}};
  EXPECT_FALSE(wants_keep_alive(head));
  head.headers = {{"Connection", "keep-alive, close"}};
  EXPECT_FALSE(wants_keep_alive(head));
  head.minor_version = 0;
  head.headers = {};
  EXPECT_FALSE(wants_keep_alive(head));
  head.headers = {{"Connection", "Keep-Alive"}};
  EXPECT_TRUE(wants_keep_alive(head));
}

}  // namespace
}  // namespace espalier
