#include "terminal/chat_settings.h"

#include <gtest/gtest.h>

#include "format/testing/complaint.h"

namespace espalier {
namespace {

TEST(ChatSettings, ASettingIsWhatTheFlagOfItsNameIs) {
  TextOptions options;
  set_by_name("temperature", "0.7", options);
  set_by_name("seed", "18446744073709551615", options);
  set_by_name("max-tokens", "12", options);
  EXPECT_EQ(options.generate.sampling.temperature, 0.7f);
  EXPECT_EQ(options.generate.seed, UINT64_MAX);
  EXPECT_EQ(options.generate.max_tokens, 12);
  EXPECT_NE(shown_settings(options).find("temperature 0.7, top-k 0"), std::string::npos) << shown_settings(options);
}

TEST(ChatSettings, AWrongValueChangesNothing) {
  TextOptions options;
  EXPECT_EQ(complaint([&] { set_by_name("seed", "-1", options); }), "/set seed: expected a whole number, got \"-1\"");
  EXPECT_EQ(complaint([&] { set_by_name("top-p", "much", options); }), "/set top-p: expected a number, got \"much\"");
  EXPECT_NE(complaint([&] { set_by_name("top-p", "7", options); }), "");
  EXPECT_EQ(options.generate.sampling.top_p, 1.0f);
  EXPECT_NE(complaint([&] { set_by_name("warmth", "7", options); }).find("draft, temperature, top-k"),
            std::string::npos);
}

}  // namespace
}  // namespace espalier
