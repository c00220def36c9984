#include "serve/protocol/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace espalier {
namespace {

using nlohmann::json;

TEST(JsonWriter, MembersComeInTheOrderOfCalls) {
  JsonObject object;
  object.string("b", "x").integer("a", -3).boolean("c", true).null("d").number("e", 0.5).raw("f", "[1]");
  EXPECT_EQ(object.text(), R"({"b":"x","a":-3,"c":true,"d":null,"e":0.5,"f":[1]})");
  EXPECT_EQ(JsonObject().text(), "{}");
  EXPECT_EQ(JsonArray().text(), "[]");
  EXPECT_EQ(JsonArray().integer(1).string("\"").raw("null").text(), R"([1,"\"",null])");
}

TEST(JsonWriter, AnyBytesBecomeOneLineOfUtf8) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 1000; ++trial) {
    std::string bytes(random() % 20, ' ');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const std::string text = JsonObject().string(bytes, bytes).text();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_TRUE(json::accept(text));
  }
  EXPECT_EQ(json::parse(json_string("a\n\"\\\u2028é😀")), "a\n\"\\\u2028é😀");
}

TEST(JsonWriter, NumbersReadBackToTheSameBits) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 20'000; ++trial) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(json::parse(json_number(value)).get<double>(), value);
    EXPECT_EQ(json::parse(json_logprob(value)).get<double>(), value);
    const float single = static_cast<float>(random() % 1000) / 997.0f;
    EXPECT_EQ(json::parse(json_number(single)).get<float>(), single);
  }
  EXPECT_EQ(json_number(0.8f), "0.8");
}

TEST(JsonWriter, WhatIsNotFiniteIsNullAndVeryUnlikelyAsALogProbability) {
  for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(json_number(value), "null");
    EXPECT_EQ(json_number(static_cast<float>(value)), "null");
    EXPECT_EQ(json_logprob(value), "-9999.0");
  }
}

}  // namespace
}  // namespace espalier
