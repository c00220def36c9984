#include "serve/http/api_keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/temporary_file.h"
#include "base/whole_file.h"

namespace espalier {
namespace {

ApiKeys two_keys() {
  ApiKeys keys;
  keys.add("sk-first", "test");
  keys.add("sk-second", "test");
  return keys;
}

std::optional<int> found_with(std::vector<HttpHeader> headers) {
  HttpHead head;
  head.headers = std::move(headers);
  return two_keys().find(head);
}

std::string message_of(auto&& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ApiKeys, AreFoundInTheOrderTheyWereAdded) {
  const ApiKeys keys = two_keys();
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys.find("sk-first"), 0);
  EXPECT_EQ(keys.find("sk-second"), 1);
}

TEST(ApiKeys, OpenNothingForWrongKeys) {
  const ApiKeys keys = two_keys();
  for (const std::string_view wrong : {"", "sk-", "sk-firs", "sk-first ", "SK-FIRST", "sk-third", "sk-firstsk-second"})
    EXPECT_EQ(keys.find(wrong), std::nullopt) << wrong;
  EXPECT_EQ(ApiKeys().find(""), std::nullopt);
  EXPECT_TRUE(ApiKeys().empty());
}

TEST(ApiKeys, ComeAsBearerOrInAHeaderOfTheirOwn) {
  EXPECT_EQ(found_with({{"Authorization", "Bearer sk-second"}}), 1);
  EXPECT_EQ(found_with({{"authorization", "bearer  sk-second"}}), 1);
  EXPECT_EQ(found_with({{"X-API-KEY", "sk-first"}}), 0);
  EXPECT_EQ(found_with({{"Authorization", "Basic eDp5"}, {"X-Api-Key", "sk-first"}}), 0);
  EXPECT_EQ(found_with({{"Authorization", "Bearer none"}, {"X-Api-Key", "sk-first"}}), 0);
  EXPECT_EQ(found_with({}), std::nullopt);
  EXPECT_EQ(found_with({{"Authorization", "sk-first"}}), std::nullopt);
  EXPECT_EQ(found_with({{"Authorization", "Bearer"}}), std::nullopt);
  EXPECT_EQ(found_with({{"Authorization", "Bearer "}}), std::nullopt);
  EXPECT_EQ(found_with({{"Authorization", "Bearersk-first"}}), std::nullopt);
}

TEST(ApiKeys, AreReadFromAFileLineByLine) {
  const TemporaryDirectory folder(std::filesystem::temp_directory_path() / "api_keys");
  const auto path = folder.path() / "keys";
  write_whole_file(path, "# the team\nsk-a\n\n  sk-b \t\r\nsk-a\nsk-c");
  ApiKeys keys;
  keys.add("sk-c", "--api-key");
  keys.add_file(path);
  EXPECT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys.find("sk-c"), 0);
  EXPECT_EQ(keys.find("sk-a"), 1);
  EXPECT_EQ(keys.find("sk-b"), 2);
  EXPECT_EQ(keys.find("# the team"), std::nullopt);
}

TEST(ApiKeys, NameTheLineThatIsNoKeyAndNotTheKey) {
  const TemporaryDirectory folder(std::filesystem::temp_directory_path() / "api_keys");
  const auto path = folder.path() / "keys";
  write_whole_file(path, "sk-a\nsk secret\n");
  EXPECT_EQ(
      message_of([&] { ApiKeys().add_file(path); }),
      path.string() + ":2: an API key consists of visible ASCII characters without spaces, and this one does not");
  write_whole_file(path, "# none yet\n");
  EXPECT_EQ(message_of([&] { ApiKeys().add_file(path); }),
            path.string() + ": expected API keys, one per line, got none");
  EXPECT_EQ(message_of([&] { ApiKeys().add("", "ESPALIER_API_KEY"); }),
            "ESPALIER_API_KEY: an API key has 1 to 512 characters, got 0");
  EXPECT_EQ(message_of([&] { ApiKeys().add(std::string(513, 'x'), "--api-key"); }),
            "--api-key: an API key has 1 to 512 characters, got 513");
  EXPECT_EQ(message_of([&] { ApiKeys().add(std::string(512, 'x'), "--api-key"); }), "no error");
}

}  // namespace
}  // namespace espalier
