#include "base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "format/safetensors.h"
#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string json_complaint(std::string_view text) {
  return complaint([&] { parse_json(text, "c.json"); });
}

TEST(JsonText, ReadsEveryKindOfValue) {
  const std::string text = R"({"a": [1, -2, 2.5, true, null, "x\u00e9"], "b": {"c": {}}, "d": []})";
  EXPECT_EQ(parse_json(text, "c.json"), nlohmann::json::parse(text));
  EXPECT_EQ(parse_json(" 7 ", "c.json"), 7);
}

TEST(JsonText, SameKeyInDifferentObjectsIsFine) {
  EXPECT_EQ(json_complaint(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})"), "");
}

TEST(JsonText, SyntaxErrorGivesPathLineAndColumn) {
  EXPECT_THAT(json_complaint("{\n  \"a\": 1,\n  \"b\": x\n}"), StartsWith("c.json:3:8: not JSON: "));
  EXPECT_THAT(json_complaint("{\"a\": 1"), StartsWith("c.json:1:7: not JSON: "));
}

TEST(JsonText, ErrorsTellTheByteThatIsWrongAndWhy) {
  const auto offset = [](std::string_view text) {
    try {
      parse_json(text, "c.json");
    } catch (const JsonTextError& error) {
      EXPECT_THAT(error.what(), testing::EndsWith(error.reason));
      return static_cast<int>(error.offset);
    }
    return -1;
  };
  EXPECT_EQ(offset("{\n  \"a\": x}"), 9);
  EXPECT_EQ(offset("{\"a\": 1"), 7);  // where more was expected
  EXPECT_EQ(offset("{\"a\": 1, \"a\": 2}"), 11);
  EXPECT_EQ(offset(std::string(65, '[')), 64);
  EXPECT_EQ(offset(""), 0);
}

TEST(JsonText, NestingMayBeLimitedFurther) {
  EXPECT_NO_THROW(parse_json("[[]]", "c.json", 2));
  EXPECT_THROW(parse_json("[[[]]]", "c.json", 2), JsonTextError);
}

TEST(JsonText, DuplicateKeyIsNamedWithItsPlace) {
  EXPECT_EQ(json_complaint("{\"a\": 1,\n \"a\": 2}"), "c.json:2:4: duplicate key \"a\"");
  EXPECT_EQ(json_complaint(R"([{"b": {"x": 1, "\u0078": 2}}])"), "c.json:1:24: duplicate key \"x\"");
}

TEST(JsonText, NestingIsLimited) {
  EXPECT_EQ(json_complaint(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_EQ(json_complaint(std::string(65, '[') + std::string(65, ']')), "c.json:1:65: nested deeper than 64 levels");
  EXPECT_THAT(json_complaint(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
}

TEST(JsonText, EmptyTextIsRefused) {
  EXPECT_THAT(json_complaint(""), StartsWith("c.json:1:1: not JSON: "));
}

TEST(JsonText, TextAfterTheValueIsRefused) {
  EXPECT_THAT(json_complaint("{} {}"), HasSubstr("not JSON"));
}

TEST(JsonText, NulByteIsRefusedAndNotTakenForTheEnd) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(json_complaint("{}\0 nonsense"sv), "c.json:1:3: expected JSON text, got a NUL byte");
}

TEST(JsonText, NumberTooLargeForADoubleIsRefused) {
  EXPECT_THAT(json_complaint("[1e999]"), HasSubstr("not JSON"));
}

TEST(JsonText, InvalidUtf8IsRefusedInOnePrintableLine) {
  EXPECT_THAT(json_complaint("[\"a\xff\n\"]"),
              AllOf(HasSubstr("not JSON"), Not(HasSubstr("\n")), Not(HasSubstr("\xff"))));
}

TEST(JsonText, ComplaintsStayShort) {
  EXPECT_LT(json_complaint("[\"" + std::string(100'000, 'a')).size(), 200u);
}

TEST(JsonText, DamagedTextParsesAsTheLibraryDoesOrIsRefused) {
  const std::string valid = R"({"a": [1, -2.5e3, true, null, "xé\n"], "b": {"c": {}}, "d": []})";
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 5000; ++trial) {
    SCOPED_TRACE(trial);
    std::string text = valid;
    text[random() % text.size()] = static_cast<char>(random());
    if (trial % 4 == 0) text.resize(random() % text.size());
    if (!json_complaint(text).empty()) continue;
    EXPECT_EQ(parse_json(text, "c.json"), nlohmann::json::parse(text));
  }
}

TEST(JsonFile, ReadsAFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_json_file(folder.write("config.json", "{\"a\": 1}")), nlohmann::json({{"a", 1}}));
}

TEST(JsonFile, ComplaintsStartWithThePath) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write("config.json", "{,}");
  try {
    read_json_file(path);
    FAIL() << "expected an InputError";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), StartsWith(path.string() + ":1:2: "));
  }
  EXPECT_THROW(read_json_file(folder / "none.json"), InputError);
}

}  // namespace
}  // namespace espalier
