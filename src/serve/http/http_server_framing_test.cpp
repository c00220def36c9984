// Bytes that are no requests, or that two programs could read as different ones: they are refused, the connection is
// closed, and what stands behind them is never taken for a request.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/testing/sanitized.h"
#include "serve/http/testing/fake_site.h"

namespace espalier {
namespace {

struct Smuggling {
  std::string name;
  std::string headers;
  int status;
};

void PrintTo(const Smuggling& form, std::ostream* out) {
  *out << form.name;
}

std::vector<Smuggling> smuggling_forms() {
  const std::string nul("X: a\0b\r\n", 8);
  return {
      {"LengthAndEncoding", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 411},
      {"EncodingAndLength", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 411},
      {"EncodingAlone", "Transfer-Encoding: chunked\r\n", 411},
      {"EncodingTwice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", 411},
      {"EncodingIdentity", "Transfer-Encoding: identity\r\nContent-Length: 5\r\n", 411},
      {"EncodingInCapitals", "TRANSFER-ENCODING: CHUNKED\r\nContent-Length: 5\r\n", 411},
      {"EncodingUnknown", "Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n", 411},
      {"EncodingEmpty", "Transfer-Encoding:\r\nContent-Length: 5\r\n", 411},
      {"EncodingSpaceBeforeColon", "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n", 400},
      {"EncodingFolded", "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"EncodingBehindALineFeed", "X: y\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"EncodingBehindAReturn", "X: y\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400},
      {"LengthTwice", "Content-Length: 5\r\nContent-Length: 5\r\n", 400},
      {"LengthsThatDiffer", "Content-Length: 5\r\nContent-Length: 6\r\n", 400},
      {"LengthList", "Content-Length: 5, 5\r\n", 400},
      {"LengthWithPlus", "Content-Length: +5\r\n", 400},
      {"LengthWithMinus", "Content-Length: -5\r\n", 400},
      {"LengthWithSpace", "Content-Length: 5 5\r\n", 400},
      {"LengthInHex", "Content-Length: 0x5\r\n", 400},
      {"LengthEmpty", "Content-Length:\r\n", 400},
      {"LengthTooLong", "Content-Length: 18446744073709551621\r\n", 400},
      {"LengthBeyondAllLimits", "Content-Length: 1000000000000000000\r\n", 400},
      {"LengthSpaceBeforeColon", "Content-Length : 5\r\n", 400},
      {"Nul", nul + "Content-Length: 5\r\n", 400},
      {"HostTwice", "Host: localhost\r\nContent-Length: 5\r\n", 400},
  };
}

class HttpServerFraming : public testing::TestWithParam<Smuggling> {};

TEST_P(HttpServerFraming, IsRefusedWithAllThatFollows) {
  const FakeSite site;
  RawClient client = site.client();
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + GetParam().headers +
              "\r\n0\r\n\r\n" + get_bytes("/health"));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, GetParam().status);
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_EQ(client.read_to_end(), "");
  EXPECT_EQ(site.handled(), 0);
}

INSTANTIATE_TEST_SUITE_P(Smuggling, HttpServerFraming, testing::ValuesIn(smuggling_forms()),
                         [](const auto& info) { return info.param.name; });

TEST(HttpServerGarbage, IsRefusedAtOnce) {
  const FakeSite site;
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02\x00\x01\x00", 7), std::string("\0", 1), std::string("GET / HTTP/1.1\n\n"),
        std::string("hello\r\n\r\n"), std::string("GET /health\r\n\r\n"), std::string(" \r\n\r\n")}) {
    RawClient client = site.client();
    client.send(bytes);
    EXPECT_EQ(client.read_answer().status, 400) << testing::PrintToString(bytes);
    EXPECT_TRUE(client.ended());
  }
  EXPECT_EQ(site.ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status, 400);
  EXPECT_EQ(site.ask("GET / HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(site.handled(), 0);
}

// Requests with bytes changed, left out and put in: whatever they are, they are answered or refused, and the server
// goes on.
TEST(HttpServerGarbage, OfAnyKindHarmsNobody) {
  constexpr unsigned kSeed = 5;
  constexpr int kRounds = kSanitized ? 100 : 400;
  constexpr HttpLimits::Time kShort(300);
  FakeSite site(on_any_port({.header_time = kShort, .body_time = kShort, .linger_time = kShort}));
  std::mt19937 random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = post_bytes("/echo", "some body") + get_bytes("/health?a=b", "Accept: */*\r\n");
    for (unsigned i = random() % 6; i > 0; --i) {
      const std::size_t place = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[place] = static_cast<char>(random() % 256); break;
        case 1: bytes.erase(place, random() % 20); break;
        default: bytes.insert(place, 1 + random() % 3, "\r\n: ,0\0\xff"[random() % 8]); break;
      }
      if (bytes.empty()) bytes = "x";
    }
    RawClient client = site.client();
    client.send(bytes);
    client.half_close();
    const std::string answers = client.read_to_end();
    EXPECT_TRUE(answers.empty() || answers.starts_with("HTTP/1.1 ")) << "seed " << kSeed << " round " << round;
    EXPECT_EQ(answers.find("HTTP/1.1 5"), std::string::npos) << "seed " << kSeed << " round " << round;
  }
  EXPECT_EQ(site.ask(get_bytes("/health")).status, 200);
  EXPECT_TRUE(eventually([&] { return site.server().connections() == 0; }));
}

}  // namespace
}  // namespace espalier
