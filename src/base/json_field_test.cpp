#include "base/json_field.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

std::string complaint(const std::function<void()>& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

class JsonFieldTest : public ::testing::Test {
 protected:
  const Json document_ = Json::parse(R"({
    "text": "b", "none": null, "yes": true, "count": 7, "half": 0.5, "huge": 18446744073709551615, "beyond": 1e300,
    "below": -3, "list": [1, 2, -3, 4.5, true], "inner": {"ids": [0, 9]}})");
  const JsonField field_{document_, "f.json"};
};

TEST_F(JsonFieldTest, ReadsWhatIsThere) {
  EXPECT_EQ(field_.at("text").string(), "b");
  EXPECT_TRUE(field_.at("yes").boolean());
  EXPECT_EQ(field_.at("count").integer(7, 7), 7);
  EXPECT_EQ(field_.at("half").number(), 0.5);
  EXPECT_EQ(field_.at("huge").natural(), UINT64_MAX);
  EXPECT_EQ(field_.at("inner").at("ids").integers(0, 9), (std::vector<std::int64_t>{0, 9}));
  constexpr std::string_view kWords[] = {"a", "b"};
  EXPECT_EQ(field_.at("text").one_of(kWords), 1u);
}

TEST_F(JsonFieldTest, WhatMayBeAbsentMayBeNullToo) {
  EXPECT_FALSE(field_.find("nowhere"));
  EXPECT_FALSE(field_.find("none"));
  EXPECT_EQ(field_.string_or("none", "otherwise"), "otherwise");
  EXPECT_TRUE(field_.boolean_or("yes", false));
}

TEST_F(JsonFieldTest, AComplaintSaysWhereWhatWasExpectedAndWhatIsThere) {
  EXPECT_EQ(complaint([&] { field_.at("nowhere"); }), "f.json: \"nowhere\" is missing");
  EXPECT_EQ(complaint([&] { field_.at("none").string(); }), "f.json: none: expected a string, got null");
  EXPECT_EQ(complaint([&] { field_.at("count").integer(8, 9); }), "f.json: count: expected 8 to 9, got 7");
  EXPECT_EQ(complaint([&] { field_.at("huge").integer(); }), "f.json: huge: 18446744073709551615 is too large");
  EXPECT_EQ(complaint([&] { field_.at("below").natural(); }), "f.json: below: expected 0 or more, got -3");
  EXPECT_EQ(complaint([&] { field_.at("inner").at("ids").integers(1, 9); }),
            "f.json: inner.ids[0]: expected 1 to 9, got 0");
  constexpr std::string_view kWords[] = {"x", "y"};
  EXPECT_EQ(complaint([&] { field_.at("text").one_of(kWords); }), "f.json: text: expected one of x, y, got \"b\"");
}

TEST_F(JsonFieldTest, NeitherFractionsNorTruthsAreIntegers) {
  for (const char* name : {"half", "beyond", "yes", "text"}) {
    EXPECT_NE(complaint([&] { field_.at(name).integer(); }), "") << name;
    EXPECT_NE(complaint([&] { field_.at(name).natural(); }), "") << name;
  }
  const Json truth = Json::array({1, true}), fraction = Json::array({1.0});
  EXPECT_EQ(complaint([&] { JsonField(truth, "f").integers(0, 9); }), "f: [1]: expected an integer, got boolean");
  EXPECT_EQ(complaint([&] { JsonField(fraction, "f").integers(0, 9); }), "f: [0]: expected an integer, got number");
}

TEST_F(JsonFieldTest, ElementsKnowTheirPlace) {
  const auto elements = field_.at("list").elements();
  ASSERT_EQ(elements.size(), 5u);
  EXPECT_EQ(elements[3].where(), "f.json: list[3]");
  EXPECT_EQ(field_.at("list").element(1).integer(), 2);
  EXPECT_THROW(field_.at("list").element(5), std::logic_error);
}

}  // namespace
}  // namespace espalier
