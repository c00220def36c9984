#include "model/head_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

class HeadCatalogueTest : public ::testing::Test {
 protected:
  std::filesystem::path head(const std::string& name, const std::string& config) const {
    std::filesystem::create_directories(folder_.path() / name);
    folder_.write(name + "/config.json", config);
    return folder_.path() / name;
  }
  std::vector<HeadCard> found() const {
    const std::filesystem::path folders[] = {folder_.path() / "not there", folder_.path()};
    return find_heads(folders);
  }
  DraftSuggestion suggestion(const Json& suggested, HeadKind kind = HeadKind::eagle3,
                             std::string_view isa = "avx2") const {
    HeadFiles files;
    files.folder = head("h", Json{{"espalier", {{"suggested", suggested}}}}.dump());
    return read_suggestion(files, kind, isa);
  }
  std::string refusal(const Json& suggested) const {
    return complaint([&] { suggestion(suggested); });
  }

  TemporaryFolder folder_;
};

TEST_F(HeadCatalogueTest, HeadsSayWhomTheyWereTrainedFor) {
  const auto b = head("b", R"({"espalier": {"teacher_sha256": "bb", "teacher_bytes": 12}})");
  const auto a = head("a", R"({"espalier": {"teacher": "x", "teacher_sha256": "aa"}})");
  EXPECT_THAT(found(), ElementsAre(HeadCard{.path = a, .teacher_sha256 = "aa"},
                                   HeadCard{.path = b, .teacher_sha256 = "bb", .teacher_bytes = 12}));
}

TEST_F(HeadCatalogueTest, WhatIsNoHeadOfAKnownTeacherIsPassedOver) {
  head("damaged", "{");
  head("list", "[]");
  head("stranger", R"({"hidden_size": 8})");
  head("nothing", R"({"espalier": null})");
  head("number", R"({"espalier": {"teacher_sha256": 5}})");
  head("text", R"({"espalier": "a head"})");
  head("wild", R"({"espalier": {"teacher_sha256": "aa", "teacher_bytes": "many"}})");
  folder_.write("config.json", R"({"espalier": {"teacher_sha256": "aa"}})");
  EXPECT_THAT(found(), IsEmpty());
}

TEST_F(HeadCatalogueTest, WithoutASuggestionAHeadDraftsAloneInATreeOfSixLevels) {
  const DraftSuggestion expected{.drafters = {"medusa"}, .depth = 6, .expand = 4};
  HeadFiles files;
  files.folder = folder_.path();
  EXPECT_EQ(read_suggestion(files, HeadKind::medusa, "avx2"), expected);
  files.folder = head("h", R"({"hidden_size": 8})");
  EXPECT_EQ(read_suggestion(files, HeadKind::medusa, "avx2"), expected);
  EXPECT_EQ(suggestion(Json::object(), HeadKind::medusa), expected);
}

TEST_F(HeadCatalogueTest, ASuggestionIsReadAndMayDependOnTheInstructionSet) {
  const Json suggested = {{"drafters", {"eagle3", "ngram"}},
                          {"nodes", 12},
                          {"depth", 5},
                          {"expand", 3},
                          {"vocab", 8192},
                          {"isa", {{"avx512", {{"nodes", "auto"}, {"depth", 8}}}}}};
  EXPECT_EQ(suggestion(suggested), (DraftSuggestion{.drafters = {"eagle3", "ngram"},
                                                    .nodes = 12,
                                                    .depth = 5,
                                                    .expand = 3,
                                                    .vocabulary = 8192,
                                                    .measured = false}));
  EXPECT_EQ(suggestion(suggested, HeadKind::eagle3, "avx512"),
            (DraftSuggestion{.drafters = {"eagle3", "ngram"}, .depth = 8, .expand = 3, .vocabulary = 8192}));
}

TEST_F(HeadCatalogueTest, ASuggestionThatMakesNoSenseIsNamed) {
  EXPECT_THAT(refusal({{"drafters", {"medusa"}}}),
              HasSubstr("suggested.drafters: expected [\"eagle3\"] or [\"eagle3\", \"ngram\"], got [\"medusa\"]"));
  EXPECT_THAT(refusal({{"nodes", 0}}), HasSubstr("nodes: expected 1 to 256, got 0"));
  EXPECT_THAT(refusal({{"nodes", "many"}}), HasSubstr("nodes: expected an integer"));
  EXPECT_THAT(refusal({{"depth", 1000}}), HasSubstr("depth: expected 1 to 256"));
  EXPECT_THAT(refusal({{"vocab", 0}}), HasSubstr("vocab: expected 1 to"));
  EXPECT_THAT(refusal({{"isa", 3}}), HasSubstr("config.json: expected a JSON object, got number"));
  EXPECT_THAT(refusal({{"isa", {{"avx2", 3}}}}), HasSubstr("config.json: expected a JSON object, got number"));
  EXPECT_THAT(refusal(5), HasSubstr("config.json: expected a JSON object, got number"));
}

}  // namespace
}  // namespace espalier
