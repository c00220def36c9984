#include "serve/http/request_target.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

using Query = std::vector<std::pair<std::string, std::string>>;

std::string path_of(std::string_view text) {
  const auto target = parse_request_target(text);
  return target ? target->path : "refused";
}

Query query_of(std::string_view text) {
  const auto target = parse_request_target(text);
  return target ? target->query : Query{{"refused", ""}};
}

TEST(RequestTarget, DecodesPaths) {
  EXPECT_EQ(path_of("/"), "/");
  EXPECT_EQ(path_of("/v1/chat/completions"), "/v1/chat/completions");
  EXPECT_EQ(path_of("/v1/models/a%2Fb%20c"), "/v1/models/a/b c");
  EXPECT_EQ(path_of("/a+b"), "/a+b");
  EXPECT_EQ(path_of("/%C3%a4"), "/\xc3\xa4");
  EXPECT_EQ(path_of("/x?y"), "/x");
  EXPECT_EQ(path_of("/%3Fx"), "/?x");
  EXPECT_EQ(path_of("/a/../b"), "/a/../b");
}

TEST(RequestTarget, DecodesParameters) {
  EXPECT_EQ(query_of("/slots?fail_on_no_slot=1"), (Query{{"fail_on_no_slot", "1"}}));
  EXPECT_EQ(query_of("/?a=1&b&c=&a=2"), (Query{{"a", "1"}, {"b", ""}, {"c", ""}, {"a", "2"}}));
  EXPECT_EQ(query_of("/?&&a+b=c%3dd=e&"), (Query{{"a b", "c=d=e"}}));
  EXPECT_EQ(query_of("/?a=b?c/d"), (Query{{"a", "b?c/d"}}));
  EXPECT_EQ(query_of("/?=x"), (Query{{"", "x"}}));
  EXPECT_EQ(query_of("/?"), Query{});
}

TEST(RequestTarget, FindsTheFirstParameterOfAName) {
  const auto target = parse_request_target("/?a=1&a=2&b=");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->parameter("a"), "1");
  EXPECT_EQ(target->parameter("b"), "");
  EXPECT_EQ(target->parameter("c"), std::nullopt);
}

TEST(RequestTarget, TakesTheFormThatProxiesSend) {
  const auto target = parse_request_target("http://localhost:8080/health?x=1");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->authority, "localhost:8080");
  EXPECT_EQ(target->path, "/health");
  EXPECT_EQ(target->parameter("x"), "1");
  EXPECT_EQ(path_of("http://localhost"), "/");
  EXPECT_EQ(path_of("http://localhost?a"), "/");
  EXPECT_EQ(path_of("*"), "*");
}

TEST(RequestTarget, RefusesWhatIsMalformed) {
  for (const std::string_view text : {"",
                                      "x",
                                      "health",
                                      "/%",
                                      "/%4",
                                      "/%4g",
                                      "/%g4",
                                      "/%00",
                                      "/%0a",
                                      "/%7f",
                                      "/%ff",
                                      "/%c3",
                                      "/a#b",
                                      "/a b",
                                      "/\xc3\xa4",
                                      "/?%",
                                      "/?a=%zz",
                                      "/?a=%00",
                                      "/?%80",
                                      "http://",
                                      "http:///x",
                                      "http://user@localhost/",
                                      "https://localhost/",
                                      "localhost:443",
                                      "**",
                                      "/?a=b#c",
                                      "%2Fv1"})
    EXPECT_EQ(path_of(text), "refused") << text;
  EXPECT_EQ(path_of(std::string_view("/a\0b", 4)), "refused");
}

}  // namespace
}  // namespace espalier
