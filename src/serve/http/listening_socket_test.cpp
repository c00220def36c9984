#include "serve/http/listening_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier {
namespace {

std::string refusal_of(const std::string& host, int port) {
  try {
    listen_on(host, port);
  } catch (const InputError& error) {
    return error.what();
  }
  return "listens";
}

TEST(ListeningSocket, ListensOnAnAddress) {
  const auto sockets = listen_on("127.0.0.1", 0);
  ASSERT_EQ(sockets.size(), 1u);
  EXPECT_EQ(sockets[0].address(), "127.0.0.1");
  EXPECT_FALSE(sockets[0].ipv6());
  EXPECT_TRUE(sockets[0].loopback());
  EXPECT_GT(sockets[0].port(), 0);
}

TEST(ListeningSocket, ListensOnAllAddressesOfANameWithOnePort) {
  const auto sockets = listen_on("localhost", 0);
  ASSERT_GE(sockets.size(), 1u);
  for (const ListeningSocket& socket : sockets) {
    EXPECT_TRUE(socket.loopback()) << socket.address();
    EXPECT_EQ(socket.port(), sockets[0].port());
  }
}

TEST(ListeningSocket, KnowsWhatOthersCanReach) {
  const auto sockets = listen_on("0.0.0.0", 0);
  ASSERT_EQ(sockets.size(), 1u);
  EXPECT_FALSE(sockets[0].loopback());
}

TEST(ListeningSocket, APortThatIsTakenIsOneClearLine) {
  const auto sockets = listen_on("127.0.0.1", 0);
  const int port = sockets[0].port();
  EXPECT_EQ(refusal_of("127.0.0.1", port),
            fmt::format("--port {}: another program listens on 127.0.0.1 already; expected a free port", port));
}

TEST(ListeningSocket, HostsThatAreNotOursAreOneClearLine) {
  EXPECT_THAT(refusal_of("", 0),
              testing::StartsWith("--host: expected an address or a name of this machine, got \"\""));
  EXPECT_THAT(refusal_of("no such\nhost", 0), testing::StartsWith("--host: expected an address"));
  EXPECT_EQ(refusal_of("192.0.2.1", 0), "--host 192.0.2.1: this machine does not have this address");
  EXPECT_EQ(refusal_of("127.0.0.1", 65536), "--port: expected 0 to 65535, got 65536");
  EXPECT_EQ(refusal_of("127.0.0.1", -1), "--port: expected 0 to 65535, got -1");
}

TEST(ListeningSocket, IsClosedWithItsObject) {
  int port = 0;
  {
    const auto sockets = listen_on("127.0.0.1", 0);
    port = sockets[0].port();
  }
  EXPECT_EQ(refusal_of("127.0.0.1", port), "listens");
}

}  // namespace
}  // namespace espalier
