#include "serve/http/http_types.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

HttpHead head_with(std::vector<HttpHeader> headers) {
  HttpHead head;
  head.headers = std::move(headers);
  return head;
}

TEST(HttpHead, FindsTheFirstHeaderOfANameInAnyCase) {
  const HttpHead head = head_with({{"accept", "a"}, {"X-Api-Key", "one"}, {"x-api-key", "two"}});
  EXPECT_EQ(head.header("x-API-key"), "one");
  EXPECT_EQ(head.count("X-Api-Key"), 2u);
  EXPECT_EQ(head.header("X-Api"), std::nullopt);
  EXPECT_EQ(head.count("X-Api-Keys"), 0u);
}

TEST(HttpHead, ReadsListsItemByItem) {
  const HttpHead head = head_with({{"Connection", "Upgrade,\t Keep-Alive "}, {"connection", "x-closed"}});
  EXPECT_TRUE(head.header_lists("Connection", "keep-alive"));
  EXPECT_TRUE(head.header_lists("connection", "upgrade"));
  EXPECT_TRUE(head.header_lists("connection", "X-Closed"));
  EXPECT_FALSE(head.header_lists("Connection", "close"));
  EXPECT_FALSE(head.header_lists("Accept", "upgrade"));
}

TEST(EqualIgnoringCase, ChangesLettersOnly) {
  EXPECT_TRUE(equal_ignoring_case("Content-Type", "content-TYPE"));
  EXPECT_FALSE(equal_ignoring_case("a", "ab"));
  EXPECT_FALSE(equal_ignoring_case("[", "{"));
  EXPECT_FALSE(equal_ignoring_case("\xc3\xa4", "\xc3\x84"));
}

}  // namespace
}  // namespace espalier
