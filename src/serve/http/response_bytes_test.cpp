#include "serve/http/response_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ResponseBytes, AWholeAnswerSaysHowLongItIs) {
  const HttpResponse response{.status = 404, .headers = {{"Retry-After", "1"}}, .body = "{}"};
  EXPECT_EQ(whole_answer(response, {.id = "abc"}),
            "HTTP/1.1 404 Not Found\r\nRetry-After: 1\r\nX-Request-Id: abc\r\nX-Content-Type-Options: nosniff\r\n"
            "Cache-Control: no-store\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(ResponseBytes, AnAnswerMayHaveItsOwnIdAndCaching) {
  const HttpResponse response{.headers = {{"x-request-id", "chatcmpl-1"}, {"Cache-Control", "max-age=9"}}};
  const std::string bytes = whole_answer(response, {.id = "abc"});
  EXPECT_THAT(bytes, HasSubstr("x-request-id: chatcmpl-1\r\n"));
  EXPECT_THAT(bytes, Not(HasSubstr("abc")));
  EXPECT_THAT(bytes, Not(HasSubstr("no-store")));
}

TEST(ResponseBytes, TheConnectionIsSpokenOfWhereItIsNotUnderstood) {
  EXPECT_THAT(whole_answer({}, {}), Not(HasSubstr("Connection")));
  EXPECT_THAT(whole_answer({}, {.keep_alive = false}), HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(whole_answer({}, {.minor_version = 0}), HasSubstr("Connection: keep-alive\r\n"));
}

TEST(ResponseBytes, HeadAndNoContentHaveNoBody) {
  const std::string head = whole_answer({.body = "12345"}, {.bodiless = true});
  EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  const std::string none = whole_answer({.status = 204}, {});
  EXPECT_THAT(none, Not(HasSubstr("\nContent-")));
  EXPECT_TRUE(none.ends_with("\r\n\r\n"));
}

TEST(ResponseBytes, AStreamComesInChunks) {
  const HttpFrame frame{.id = "abc", .cors = {{"Vary", "Origin"}}};
  EXPECT_EQ(event_stream_head({}, frame),
            "HTTP/1.1 200 OK\r\nVary: Origin\r\nX-Request-Id: abc\r\nX-Content-Type-Options: nosniff\r\n"
            "Content-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
            "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(stream_piece("data: {}\n\n", frame), "a\r\ndata: {}\n\n\r\n");
  EXPECT_EQ(stream_piece("", frame), "");
  EXPECT_EQ(stream_end(frame), "0\r\n\r\n");
}

TEST(ResponseBytes, AStreamForHttp10EndsWithTheConnection) {
  const HttpFrame frame{.minor_version = 0, .keep_alive = false};
  EXPECT_THAT(event_stream_head({}, frame), Not(HasSubstr("chunked")));
  EXPECT_EQ(stream_piece("data: {}\n\n", frame), "data: {}\n\n");
  EXPECT_EQ(stream_end(frame), "");
}

TEST(ResponseBytes, HeadersThatWouldBreakTheAnswerAreOurMistake) {
  EXPECT_NO_THROW(check_answer(200, "text/html", {{"Retry-After", "1"}, {"X-Request-Id", "chatcmpl-\xc3\xa4"}}));
  EXPECT_THROW(check_answer(200, "text/html", {{"A", "b\r\nC: d"}}), std::logic_error);
  EXPECT_THROW(check_answer(200, "text/html", {{"A b", "c"}}), std::logic_error);
  EXPECT_THROW(check_answer(200, "text/html", {{"", "c"}}), std::logic_error);
  EXPECT_THROW(check_answer(200, "text/html", {{"content-length", "3"}}), std::logic_error);
  EXPECT_THROW(check_answer(200, "text/html\r\nA: b", {}), std::logic_error);
  EXPECT_THROW(check_answer(200, "", {}), std::logic_error);
  EXPECT_THROW(check_answer(100, "text/html", {}), std::logic_error);
  EXPECT_THROW(check_answer(600, "text/html", {}), std::logic_error);
}

}  // namespace
}  // namespace espalier
