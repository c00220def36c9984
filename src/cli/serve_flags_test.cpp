#include "cli/serve_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "base/error.h"

namespace espalier {
namespace {

ServerOptions options_of(std::vector<std::string> words, const std::string& variable = {}) {
  CLI::App app;
  ServeFlags flags;
  add_serve_flags(app, flags);
  std::ranges::reverse(words);
  app.parse(words);
  return server_options(flags, [&](const char* name) -> std::optional<std::string> {
    if (std::string_view(name) == "ESPALIER_API_KEY" && !variable.empty()) return variable;
    return std::nullopt;
  });
}

TEST(ServeFlags, BytesHaveUnits) {
  EXPECT_EQ(parse_bytes("4096", "--x"), 4096);
  EXPECT_EQ(parse_bytes("3K", "--x"), 3072);
  EXPECT_EQ(parse_bytes("1.5GiB", "--x"), std::int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("2MB", "--x"), 2 << 20);
  for (const char* wrong : {"", "M", "-1", "0", "1X", "1KK", "1 M", "9999999999T", "nan", "inf"})
    EXPECT_THROW(parse_bytes(wrong, "--x"), InputError) << wrong;
}

TEST(ServeFlags, TheDefaultsAreThoseOfTheDocuments) {
  const ServerOptions options = options_of({});
  EXPECT_EQ(options.http.host, "127.0.0.1");
  EXPECT_EQ(options.http.port, 8080);
  EXPECT_EQ(options.http.limits.connections, 256);
  EXPECT_EQ(options.http.limits.body_bytes, std::size_t{4} << 20);
  EXPECT_EQ(options.model.parallel, 8);
  EXPECT_EQ(options.service.queue, 64);
  EXPECT_EQ(options.service.queue_time, std::chrono::seconds(120));
  EXPECT_EQ(options.service.request_time, std::chrono::seconds(600));
  EXPECT_DOUBLE_EQ(options.model.stall_seconds, 0.05);
  EXPECT_FALSE(options.model.kv_bytes);
  EXPECT_TRUE(options.application.slots && options.application.page && !options.application.metrics);
}

TEST(ServeFlags, AKeyOfTheEnvironmentCountsWhereNoFlagGivesOne) {
  EXPECT_TRUE(options_of({}).http.keys.empty());
  EXPECT_TRUE(options_of({}, "secret").http.keys.find("secret"));
  const ServerOptions given = options_of({"--api-key", "a", "--api-key", "b"}, "secret");
  EXPECT_EQ(given.http.keys.size(), 2u);
  EXPECT_FALSE(given.http.keys.find("secret"));
}

TEST(ServeFlags, SwitchesSwitchOff) {
  const ServerOptions options = options_of({"--no-slots", "--no-ui", "--metrics", "--cache-scope", "shared"});
  EXPECT_TRUE(!options.application.slots && !options.application.page && options.application.metrics);
  EXPECT_TRUE(options.shared_cache);
}

TEST(ServeFlags, WhatCannotBeIsRefused) {
  EXPECT_THROW(options_of({"--date", "2026-13-01"}), InputError);
  EXPECT_THROW(options_of({"--public-metrics"}), InputError);
  EXPECT_THROW(options_of({"--allow-host", "http://x"}), InputError);
  EXPECT_THROW(options_of({"--stall-ms", "0"}), CLI::ParseError);
}

}  // namespace
}  // namespace espalier
