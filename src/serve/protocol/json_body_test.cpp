#include "serve/protocol/json_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "serve/protocol/testing/refusal.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

std::string body_complaint(std::string_view bytes) {
  const ApiError error = refusal([&] { JsonBody{bytes}; });
  return error.status == 400 ? error.message : error.status == 0 ? "" : "another status";
}

TEST(JsonBody, TextThatIsNoJsonIsRefusedWithItsByteOffset) {
  EXPECT_THAT(body_complaint(R"({"a": x})"), HasSubstr("at byte 6"));
  EXPECT_THAT(body_complaint(R"({"a": 1)"), HasSubstr("at byte 7"));
  EXPECT_THAT(body_complaint(""), HasSubstr("at byte 0"));
  EXPECT_THAT(body_complaint(R"({} {})"), HasSubstr("at byte 3"));
  EXPECT_THAT(body_complaint("{\"a\":\n\n\x01}"), HasSubstr("at byte 7"));
}

TEST(JsonBody, WhatItHasReadIsNotRepeated) {
  for (const char* body : {R"({"prompt": "my secret" x})", R"({"prompt": "my secret)", "{\"prompt\": \"my secret\n\"}",
                           R"({"prompt": my secret})", "{\"prompt\": \"my secret\xff\"}"})
    EXPECT_THAT(body_complaint(body), AllOf(HasSubstr("not JSON"), Not(HasSubstr("secret")))) << body;
}

TEST(JsonBody, ThirtyTwoLevelsAreReadAndThirtyThreeAreNot) {
  const auto nested = [](int levels) {  // of which the object is one
    return "{\"a\":" + std::string(static_cast<std::size_t>(levels - 1), '[') +
           std::string(static_cast<std::size_t>(levels - 1), ']') + "}";
  };
  EXPECT_EQ(body_complaint(nested(32)), "");
  EXPECT_THAT(body_complaint(nested(33)), HasSubstr("deeper than 32 levels"));
  EXPECT_THAT(body_complaint(std::string(4 << 20, '[')), HasSubstr("deeper than 32 levels"));
}

TEST(JsonBody, AFieldThatIsThereTwiceIsRefused) {
  EXPECT_THAT(body_complaint(R"({"n": 1, "n": 2})"), HasSubstr("duplicate key \"n\""));
}

TEST(JsonBody, BytesThatAreNoUtf8AndNumbersThatDoNotFitAreRefused) {
  EXPECT_THAT(body_complaint("{\"a\": \"\xc3\x28\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(body_complaint(R"({"a": "\ud800"})"), HasSubstr("not JSON"));
  EXPECT_THAT(body_complaint(R"({"a": 1e999})"), HasSubstr("not JSON"));
  EXPECT_THAT(body_complaint(std::string_view("{\"a\": \0}", 8)), HasSubstr("NUL"));
}

TEST(JsonBody, TheRootIsAnObject) {
  EXPECT_THAT(body_complaint("[1]"), HasSubstr("expected a JSON object, got array"));
  EXPECT_EQ(body_complaint("{}"), "");
}

// The message about field "a" of a body, and what its `param` is.
template <typename Read>
std::string field_complaint(std::string_view bytes, Read read) {
  const JsonBody body(bytes);
  const ApiError error = refusal([&] { read(*body.root().find("a")); });
  EXPECT_EQ(error.status, 400);
  return error.message + " | " + error.param.value_or("");
}

TEST(BodyField, AWrongTypeNamesFieldExpectationAndValue) {
  EXPECT_EQ(field_complaint(R"({"a": 3})", [](const BodyField& f) { f.boolean(); }),
            "a: expected true or false, got 3 | a");
  EXPECT_EQ(field_complaint(R"({"a": true})", [](const BodyField& f) { f.integer(1, 5); }),
            "a: expected a whole number from 1 to 5, got true | a");
  EXPECT_EQ(field_complaint(R"({"a": {"b": 1}})", [](const BodyField& f) { f.text(); }),
            "a: expected a string, got an object of 1 | a");
  EXPECT_EQ(field_complaint(R"({"a": [1, 2]})", [](const BodyField& f) { f.number(0, 2); }),
            "a: expected a number from 0 to 2, got an array of 2 | a");
}

TEST(BodyField, ARangeIsNamedWithTheValue) {
  EXPECT_EQ(field_complaint(R"({"a": 6})", [](const BodyField& f) { f.integer(1, 5); }),
            "a: expected a whole number from 1 to 5, got 6 | a");
  EXPECT_EQ(field_complaint(R"({"a": 2.5})", [](const BodyField& f) { f.integer(1, 5); }),
            "a: expected a whole number from 1 to 5, got 2.5 | a");
  EXPECT_EQ(field_complaint(R"({"a": -0.5})", [](const BodyField& f) { f.number(0, 2); }),
            "a: expected a number from 0 to 2, got -0.5 | a");
  EXPECT_EQ(field_complaint(R"({"a": 18446744073709551615})", [](const BodyField& f) { f.integer(0, INT64_MAX); }),
            "a: expected a whole number from 0 to 9223372036854775807, got 18446744073709551615 | a");
  EXPECT_EQ(field_complaint(R"({"a": "abcd"})", [](const BodyField& f) { f.text(1, 3); }),
            "a: expected 1 to 3 bytes, got 4 | a");
}

TEST(BodyField, WholeNumbersMayBeWrittenWithAPoint) {
  const JsonBody body(R"({"a": 5.0, "b": 1e3, "c": -9223372036854775808})");
  EXPECT_EQ(body.root().find("a")->integer(0, 10), 5);
  EXPECT_EQ(body.root().find("b")->integer(0, 1000), 1000);
  EXPECT_EQ(body.root().find("c")->integer(INT64_MIN, INT64_MAX), INT64_MIN);
}

TEST(BodyField, TextsAreNotRepeatedButWordsAre) {
  EXPECT_EQ(field_complaint(R"({"a": "my secret"})", [](const BodyField& f) { f.number(0, 1); }),
            "a: expected a number from 0 to 1, got a string | a");
  constexpr std::array<std::string_view, 2> kWords = {"red", "green"};
  EXPECT_EQ(field_complaint(R"({"a": "blue\n"})", [&](const BodyField& f) { f.one_of(kWords); }),
            R"(a: expected one of "red", "green", got "blue\x0a" | a)");
}

TEST(BodyField, PlacesInsideAreNamedWithTheirPath) {
  EXPECT_THAT(
      field_complaint(R"({"a": [{"b": 1}, {"b": []}]})", [](const BodyField& f) { f.element(1).find("b")->text(); }),
      HasSubstr("a[1].b: expected a string"));
  EXPECT_EQ(field_complaint(R"({"a": [1, 2, "x"]})", [](const BodyField& f) { f.integers(0, 9, 5); }),
            "a[2]: expected a whole number from 0 to 9, got a string | a[2]");
  EXPECT_EQ(field_complaint(R"({"a": [1, 2, 3]})", [](const BodyField& f) { f.integers(0, 9, 2); }),
            "a: expected 0 to 2 elements, got an array of 3 | a");
}

TEST(BodyField, NullMeansAbsent) {
  const JsonBody body(R"({"a": null})");
  EXPECT_FALSE(body.root().find("a"));
  EXPECT_FALSE(body.root().find("b"));
}

TEST(BodyField, GivesListsAndObjectsAsTheyAre) {
  const JsonBody body(R"({"a": [3, 1], "b": {"y": 1, "x": "é"}})");
  EXPECT_THAT(body.root().find("a")->integers(0, 9, 9), ElementsAre(3, 1));
  EXPECT_EQ(body.root().find("b")->json(), R"({"x":"é","y":1})");
}

}  // namespace
}  // namespace espalier
