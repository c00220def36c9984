#include "bench/load/server_url.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

TEST(ServerUrl, HasAHostAPortAndWhatStandsBeforeTheApi) {
  const auto text = [](std::string_view url) { return parse_server_url(url, "--url").text(); };
  EXPECT_EQ(text("http://localhost"), "http://localhost:80");
  EXPECT_EQ(text("http://127.0.0.1:8080/"), "http://127.0.0.1:8080");
  EXPECT_EQ(text("http://127.0.0.1:8080/v1/"), "http://127.0.0.1:8080");
  EXPECT_EQ(text("http://[::1]:8080"), "http://[::1]:8080");
  EXPECT_EQ(text("http://h:1/models/a/v1"), "http://h:1/models/a");
  EXPECT_EQ(parse_server_url("http://[::1]", "--url").host, "::1");
}

TEST(ServerUrl, AnythingElseIsRefusedInOneLine) {
  for (const char* url : {"", "localhost:8080", "https://h", "http://", "http://:80", "http://h:0", "http://h:65536",
                          "http://h:8x", "http://[::1", "http://[::1]8", "http://h/a b", "http://h/?q", "http://u@h",
                          "http://h\r\nX: y", "http://h/\xff"}) {
    try {
      parse_server_url(url, "--against");
      ADD_FAILURE() << url;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("--against: expected http://HOST[:PORT], got"));
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    }
  }
}

}  // namespace
}  // namespace espalier
