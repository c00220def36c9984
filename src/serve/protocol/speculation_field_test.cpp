#include "serve/protocol/speculation_field.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SpeculationField speculation_of(const std::string& value,
                                SpeculationField (*read)(const BodyField&) = read_speculation) {
  const JsonBody body(fmt::format(R"({{"speculation": {}}})", value));
  return read(*body.root().find("speculation"));
}

std::string speculation_complaint(const std::string& value) {
  return refusal([&] { speculation_of(value); }).message;
}

TEST(SpeculationField, IsOnOrOff) {
  EXPECT_FALSE(speculation_of("false").on);
  EXPECT_TRUE(speculation_of("true").on);
  EXPECT_FALSE(speculation_of(R"({"draft": "none"})").on);
  EXPECT_EQ(speculation_of(R"({"draft": "auto", "nodes": "auto", "depth": null})"), SpeculationField());
}

TEST(SpeculationField, SaysWhoMayGuessAndHowFar) {
  const SpeculationField asked =
      speculation_of(R"({"draft": "eagle3+ngram", "nodes": 64, "depth": 4, "tree": "static"})");
  EXPECT_THAT(asked.drafters, ElementsAre("eagle3", "ngram"));
  EXPECT_EQ(asked.nodes, 64);
  EXPECT_EQ(asked.depth, 4);
  EXPECT_EQ(asked.tree, TreeShape::fixed);
  EXPECT_EQ(speculation_of(R"({"tree": "chain"})").tree, TreeShape::chain);
  EXPECT_EQ(speculation_of(R"({"tree": "dynamic"})").tree, TreeShape::dynamic);
}

TEST(SpeculationField, WhatIsOutOfRangeIsRefused) {
  EXPECT_THAT(speculation_complaint(R"({"nodes": 65})"),
              HasSubstr("speculation.nodes: expected a whole number from 1 to 64"));
  EXPECT_THAT(speculation_complaint(R"({"nodes": 0})"), HasSubstr("got 0"));
  EXPECT_THAT(speculation_complaint(R"({"nodes": "many"})"), HasSubstr(R"(expected "auto" or a whole number)"));
  EXPECT_THAT(speculation_complaint(R"({"depth": 0})"), HasSubstr("speculation.depth: expected"));
  EXPECT_THAT(speculation_complaint(R"({"depth": 17})"), HasSubstr("from 1 to 16, got 17"));
  EXPECT_THAT(speculation_complaint(R"({"tree": "oak"})"), HasSubstr(R"(got "oak")"));
  EXPECT_THAT(speculation_complaint(R"({"draft": ""})"), HasSubstr("speculation.draft: expected 1 to 256 bytes"));
  EXPECT_THAT(speculation_complaint("3"), HasSubstr("speculation: expected false or an object, got 3"));
}

TEST(SpeculationField, LlamaCppsLongestDraftIsADepth) {
  EXPECT_FALSE(speculation_of("0", read_longest_draft).on);
  EXPECT_EQ(speculation_of("5", read_longest_draft).depth, 5);
  EXPECT_EQ(speculation_of("100", read_longest_draft).depth, 16);
}

}  // namespace
}  // namespace espalier
