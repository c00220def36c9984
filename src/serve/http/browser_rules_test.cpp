#include "serve/http/browser_rules.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier {
namespace {

HttpHead browser_head(std::string host, std::string origin = "") {
  HttpHead head;
  head.method = "POST";
  if (!host.empty()) head.headers.push_back({"Host", std::move(host)});
  if (!origin.empty()) head.headers.push_back({"Origin", std::move(origin)});
  return head;
}

bool lets_in(const HttpHead& head, const BrowserRules& rules = {}) {
  const auto refusal = refuse_browser(head, rules);
  EXPECT_EQ(refusal ? refusal->status : 403, 403);
  return !refusal;
}

BrowserRules with_cors(std::string_view flag) {
  BrowserRules rules;
  rules.cors = parse_cors_origins(flag);
  return rules;
}

std::string value_in(const std::vector<HttpHeader>& headers, std::string_view name) {
  for (const HttpHeader& header : headers)
    if (header.name == name) return header.value;
  return "absent";
}

TEST(BrowserRules, OnLoopbackOnlyLoopbackNamesAreHosts) {
  for (const char* host : {"localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:8080", "127.1.2.3:80",
                           "[::1]", "[::1]:8080"})
    EXPECT_TRUE(lets_in(browser_head(host))) << host;
  for (const char* host : {"", "example.com", "localhost.example.com", "127.0.0.1.example.com:8080", "0.0.0.0", "[::2]",
                           "::1", "localhost:", "localhost:x", "localhost:8080:8080", "localhost@example.com", "[::1",
                           "[::1]x", "[]", "127.0.0", "127..0.0.1", "localhost:123456", "192.168.1.2:8080"})
    EXPECT_FALSE(lets_in(browser_head(host))) << host;
}

TEST(BrowserRules, AllowedNamesAreHostsToo) {
  BrowserRules rules;
  rules.allow_hosts = {parse_allow_host("llm.example.com"), parse_allow_host("fd00::1")};
  EXPECT_TRUE(lets_in(browser_head("LLM.example.com:443"), rules));
  EXPECT_TRUE(lets_in(browser_head("[fd00::1]:8080"), rules));
  EXPECT_FALSE(lets_in(browser_head("example.com"), rules));
}

TEST(BrowserRules, TheHostInATargetCountsAsWell) {
  HttpHead head = browser_head("localhost");
  head.target.authority = "example.com";
  EXPECT_FALSE(lets_in(head));
  head.target.authority = "localhost:8080";
  EXPECT_TRUE(lets_in(head));
}

TEST(BrowserRules, AnyHostWillDoOnOtherAddresses) {
  BrowserRules rules;
  rules.loopback = false;
  EXPECT_TRUE(lets_in(browser_head("example.com"), rules));
  EXPECT_TRUE(lets_in(browser_head(""), rules));
}

TEST(BrowserRules, OnlyOurOwnPageIsAnOriginByDefault) {
  EXPECT_TRUE(lets_in(browser_head("localhost:8080", "http://localhost:8080")));
  EXPECT_TRUE(lets_in(browser_head("localhost", "https://LOCALHOST")));
  for (const char* origin :
       {"http://localhost", "http://localhost:8081", "http://127.0.0.1:8080", "https://example.com", "null",
        "localhost:8080", "file://localhost:8080", "http://localhost:8080/", "http://", "://x", "*"})
    EXPECT_FALSE(lets_in(browser_head("localhost:8080", origin))) << origin;
}

TEST(BrowserRules, LoopbackOriginsOfAnyPortCanBeAllowed) {
  const BrowserRules rules = with_cors("localhost");
  for (const char* origin : {"http://localhost", "http://localhost:3000", "https://127.0.0.1:5173", "http://[::1]:9"}) {
    const HttpHead head = browser_head("localhost:8080", origin);
    EXPECT_TRUE(lets_in(head, rules)) << origin;
    EXPECT_EQ(value_in(cors_headers(head, rules), "Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(value_in(cors_headers(head, rules), "Vary"), "Origin");
  }
  for (const char* origin : {"null", "http://localhost.example.com", "ftp://localhost", "http://example.com"}) {
    const HttpHead head = browser_head("localhost:8080", origin);
    EXPECT_FALSE(lets_in(head, rules)) << origin;
    EXPECT_EQ(value_in(cors_headers(head, rules), "Access-Control-Allow-Origin"), "absent");
  }
}

TEST(BrowserRules, AStarAllowsEveryOriginWithoutCredentials) {
  const BrowserRules rules = with_cors("*");
  for (const char* origin : {"null", "http://example.com", "app://notes"}) {
    const HttpHead head = browser_head("localhost:8080", origin);
    EXPECT_TRUE(lets_in(head, rules)) << origin;
    EXPECT_EQ(value_in(cors_headers(head, rules), "Access-Control-Allow-Origin"), "*");
    EXPECT_EQ(value_in(cors_headers(head, rules), "Access-Control-Allow-Credentials"), "absent");
  }
}

TEST(BrowserRules, AListAllowsWhatIsInIt) {
  const BrowserRules rules = with_cors("https://a.example,app://notes,http://b.example:81");
  EXPECT_TRUE(lets_in(browser_head("localhost", "https://a.example"), rules));
  EXPECT_TRUE(lets_in(browser_head("localhost", "app://notes"), rules));
  EXPECT_TRUE(lets_in(browser_head("localhost", "http://b.example:81"), rules));
  EXPECT_FALSE(lets_in(browser_head("localhost", "http://a.example"), rules));
  EXPECT_FALSE(lets_in(browser_head("localhost", "http://b.example"), rules));
  EXPECT_FALSE(lets_in(browser_head("localhost", "http://localhost:3000"), rules));
}

TEST(BrowserRules, WithoutCorsNoAnswerSpeaksOfIt) {
  EXPECT_TRUE(cors_headers(browser_head("localhost", "http://localhost"), {}).empty());
  EXPECT_TRUE(cors_headers(browser_head("localhost"), with_cors("none")).empty());
  EXPECT_EQ(cors_headers(browser_head("localhost"), with_cors("localhost")),
            (std::vector<HttpHeader>{{"Vary", "Origin"}}));
}

TEST(BrowserRules, APreflightIsToldWhatThePageMaySend) {
  HttpHead head = browser_head("localhost", "http://localhost:3000");
  head.headers.push_back({"Access-Control-Request-Method", "POST"});
  head.headers.push_back({"Access-Control-Request-Headers", "authorization,x-stainless-os"});
  const HttpResponse response = answer_options(head, with_cors("localhost"));
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(value_in(response.headers, "Access-Control-Allow-Methods"), "GET, HEAD, POST");
  EXPECT_EQ(value_in(response.headers, "Access-Control-Allow-Headers"), "authorization,x-stainless-os");
  EXPECT_EQ(value_in(response.headers, "Access-Control-Allow-Private-Network"), "absent");
  head.headers.back().value = "x\"y";
  EXPECT_EQ(value_in(answer_options(head, with_cors("*")).headers, "Access-Control-Allow-Headers"),
            "Authorization, Content-Type, X-Api-Key");
  head.headers.push_back({"Access-Control-Request-Private-Network", "true"});
  EXPECT_EQ(value_in(answer_options(head, with_cors("*")).headers, "Access-Control-Allow-Private-Network"), "true");
}

TEST(BrowserRules, PlainOptionsIsToldTheMethodsAlone) {
  const HttpResponse response = answer_options(browser_head("localhost"), with_cors("*"));
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(response.headers, (std::vector<HttpHeader>{{"Allow", "GET, HEAD, POST, OPTIONS"}}));
}

TEST(BrowserRules, FlagsThatSayNothingAreRefusedInOneLine) {
  for (const char* flag : {"example.com", "https://example.com/", "https://a.example, https://b.example", "localhost,",
                           "null", "http://a b", "https://*.example.com"})
    EXPECT_THROW(parse_cors_origins(flag), InputError) << flag;
  for (const char* flag : {"", "example.com:80", "http://example.com", "a b", "[::1", "*"})
    EXPECT_THROW(parse_allow_host(flag), InputError) << flag;
  const CorsOrigins cors = parse_cors_origins("localhost,https://a.example");
  EXPECT_TRUE(cors.localhost);
  EXPECT_EQ(cors.origins, std::vector<std::string>{"https://a.example"});
}

}  // namespace
}  // namespace espalier
