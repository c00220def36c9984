#include "serve/http/request_head.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace espalier {
namespace {

constexpr std::size_t kHeadLimit = 16384;

// The status of what refuses these bytes; 0: it is a head; -1: more is needed.
int head_status(std::string_view bytes, std::size_t limit = kHeadLimit) {
  const auto result = HeadReader(limit).read(bytes);
  if (const auto* refusal = std::get_if<HttpRefusal>(&result)) return refusal->status;
  return std::holds_alternative<HttpHead>(result) ? 0 : -1;
}

int header_status(std::string_view lines) {
  return head_status("POST / HTTP/1.1\r\nHost: x\r\n" + std::string(lines) + "\r\n\r\n");
}

TEST(RequestHead, IsRead) {
  const std::string bytes =
      "POST /v1/chat/completions?x=%31 HTTP/1.1\r\nHost: localhost:8080\r\nX-Twice:  a "
      "\t\r\nx-twice:b\r\nEmpty:\r\n\r\nbody";
  HeadReader reader(kHeadLimit);
  const auto result = reader.read(bytes);
  ASSERT_TRUE(std::holds_alternative<HttpHead>(result));
  const HttpHead& head = std::get<HttpHead>(result);
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.target.path, "/v1/chat/completions");
  EXPECT_EQ(head.target.parameter("x"), "1");
  EXPECT_EQ(head.minor_version, 1);
  EXPECT_EQ(head.headers,
            (std::vector<HttpHeader>{{"Host", "localhost:8080"}, {"X-Twice", "a"}, {"x-twice", "b"}, {"Empty", ""}}));
  EXPECT_EQ(reader.size(), bytes.size() - 4);
}

TEST(RequestHead, IsTheSameInAnyPieces) {
  const std::string bytes = "GET /a HTTP/1.0\r\nHost: x\r\nAccept: *\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
  HeadReader reader(kHeadLimit);
  std::size_t length = 0;
  while (std::holds_alternative<std::monostate>(reader.read(std::string_view(bytes).substr(0, length)))) ++length;
  EXPECT_EQ(length, bytes.find("GET /b"));
  EXPECT_EQ(reader.size(), length);
}

TEST(RequestHead, HasALimitToTheByte) {
  const std::string head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(head_status(head, head.size() + 1), 0);
  EXPECT_EQ(head_status(head, head.size()), 0);
  EXPECT_EQ(head_status(head, head.size() - 1), 431);
  EXPECT_EQ(head_status(head + "more", head.size()), 0);
  EXPECT_EQ(head_status(head.substr(0, head.size() - 1), head.size() - 1), -1);
}

TEST(RequestHead, RefusesLinesThatTwoProgramsCouldReadDifferently) {
  EXPECT_EQ(header_status("A: b"), 0);
  EXPECT_EQ(header_status("A : b"), 400);
  EXPECT_EQ(header_status("A\t: b"), 400);
  EXPECT_EQ(header_status(": b"), 400);
  EXPECT_EQ(header_status("A"), 400);
  EXPECT_EQ(header_status("A: b\r\n folded"), 400);
  EXPECT_EQ(header_status("A: b\r\n\tfolded"), 400);
  EXPECT_EQ(header_status("A: b\nC: d"), 400);
  EXPECT_EQ(header_status("A: b\rC: d"), 400);
  EXPECT_EQ(header_status("A: b\r\r\nC: d"), 400);
  EXPECT_EQ(header_status(std::string_view("A: b\0c", 6)), 400);
  EXPECT_EQ(header_status("A: \x7f"), 400);
  EXPECT_EQ(header_status("A: \x01"), 400);
  EXPECT_EQ(header_status("A(: b"), 400);
  EXPECT_EQ(header_status("\xc3\xa4: b"), 400);
  EXPECT_EQ(header_status("A: \xc3\xa4"), 0);
}

TEST(RequestHead, RefusesLengthsThatTwoProgramsCouldReadDifferently) {
  EXPECT_EQ(header_status("Content-Length: 5"), 0);
  for (const char* value :
       {"-5", "+5", "5x", "0x5", "5 5", "", "five", "5.0", "18446744073709551616", "5, 6", ",", "5,"})
    EXPECT_EQ(header_status(std::string("Content-Length: ") + value), 400) << value;
  EXPECT_EQ(header_status("Content-Length: 5\r\nContent-Length: 6"), 400);
  EXPECT_EQ(header_status("Content-Length: 5\r\nTransfer-Encoding: chunked"), 411);
  EXPECT_EQ(header_status("Transfer-Encoding: chunked\r\nContent-Length: 5"), 411);
  EXPECT_EQ(header_status("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), 411);
}

TEST(RequestHead, RefusesOtherRequestLines) {
  EXPECT_EQ(head_status("GET / HTTP/1.0\r\n\r\n"), 0);
  EXPECT_EQ(head_status("OPTIONS * HTTP/1.1\r\n\r\n"), 0);
  for (const char* line : {"GET / HTTP/2.0", "PRI * HTTP/2.0", "GET / HTTP/0.9", "GET / HTTP/1.2"})
    EXPECT_EQ(head_status(std::string(line) + "\r\n\r\n"), 400) << line;
  for (const char* line :
       {"GET /", "GET", "GET  / HTTP/1.1", " GET / HTTP/1.1", "GET / HTTP/1.1 ", "GET / http/1.1", "GET /\tHTTP/1.1",
        "GET /a b HTTP/1.1", "G@T / HTTP/1.1", "GET x HTTP/1.1", "GET * HTTP/1.1", "GET /%zz HTTP/1.1",
        "CONNECT localhost:80 HTTP/1.1", "GET /\xff HTTP/1.1", "", "\r\nGET / HTTP/1.1"})
    EXPECT_EQ(head_status(std::string(line) + "\r\n\r\n"), 400) << line;
}

TEST(RequestHead, RefusesWhatIsNoHttpBeforeItEnds) {
  EXPECT_EQ(head_status("\x16\x03\x01\x02"), 400);
  EXPECT_EQ(head_status("GET / HTTP/1.1\nHost"), 400);
  EXPECT_EQ(head_status("GET / HTTP/1.1\r\nHo"), -1);
}

TEST(RequestHead, MayHaveBlankLinesBeforeIt) {
  EXPECT_EQ(blank_lines("\r\n\r\nGET"), 4u);
  EXPECT_EQ(blank_lines("\r\nG"), 2u);
  EXPECT_EQ(blank_lines("\r"), 0u);
  EXPECT_EQ(blank_lines("\n"), 0u);
  EXPECT_EQ(blank_lines(""), 0u);
}

TEST(RequestHead, AnyBytesAreReadOrRefusedAndPiecesChangeNothing) {
  const std::vector<std::string> words = {"GET ",
                                          "POST ",
                                          "/",
                                          "/v1/x?a=b",
                                          " HTTP/1.1",
                                          " HTTP/1.0",
                                          "\r\n",
                                          "\r\n",
                                          ":",
                                          "Host: x",
                                          "%41",
                                          "%",
                                          "\n",
                                          " ",
                                          "\r\n\r\n",
                                          "\t",
                                          "Content-Length: 5",
                                          "Transfer-Encoding: chunked",
                                          ","};
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (unsigned i = random() % 12; i > 0; --i)
      bytes += random() % 8 == 0 ? std::string(1, static_cast<char>(random() % 256)) : words[random() % words.size()];
    const int whole = head_status(bytes, 200);
    HeadReader reader(200);
    int in_pieces = -1;
    for (std::size_t length = 0; length <= bytes.size() && in_pieces == -1; ++length) {
      const auto result = reader.read(std::string_view(bytes).substr(0, length));
      if (const auto* refusal = std::get_if<HttpRefusal>(&result)) in_pieces = refusal->status;
      if (std::holds_alternative<HttpHead>(result)) in_pieces = 0;
    }
    ASSERT_EQ(whole, in_pieces) << "seed " << kSeed << " round " << round;
  }
}

}  // namespace
}  // namespace espalier
