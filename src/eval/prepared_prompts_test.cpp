#include "eval/prepared_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::IsEmpty;

class PreparedPromptsTest : public ::testing::Test {
 protected:
  std::size_t artefacts() const {
    std::error_code ignored;
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_ / "cache", ignored), {}));
  }
  PromptSet data() const {
    PromptSet set;
    set.files.push_back({"p.jsonl", std::string(64, '0'), "p"});
    set.files.push_back({"q.jsonl", std::string(64, '1'), "q"});
    set.prompts = {{.id = "a", .set = "p", .turns = {"hello"}, .line = 1},
                   {.id = "b", .set = "p", .turns = {"there", "again"}, .line = 2},
                   {.id = "a", .set = "q", .turns = {"world"}, .file = 1, .line = 1}};
    return set;
  }

  TemporaryFolder folder_;
  ModelText text_ = load_model_text(std::filesystem::path(ESPALIER_TEST_DATA) / "tiny/llama2.gguf");
  ChatContext chat_ = {};
  PromptTexts texts_ = {.text = text_, .chat = chat_, .identity = "one"};
  ArtefactCache cache_ = ArtefactCache(folder_ / "cache");
};

TEST_F(PreparedPromptsTest, AreWhatASessionWouldMakeAndAreKeptByFile) {
  for (int i = 0; i < 2; ++i) {
    const auto ids = prepare_prompts(data(), texts_, cache_);
    ASSERT_EQ(ids.size(), 3u);
    EXPECT_EQ(ids[1], encode_chat(text_, {{"user", "there"}}));
    EXPECT_EQ(ids[2], encode_chat(text_, {{"user", "world"}}));
    EXPECT_EQ(artefacts(), 2u);
  }
}

TEST_F(PreparedPromptsTest, EverythingTheyDependOnIsInTheirName) {
  prepare_prompts(data(), texts_, cache_);
  PromptTexts other = texts_, brief = texts_, raw = texts_;
  other.identity = "two";
  prepare_prompts(data(), other, cache_);
  EXPECT_EQ(artefacts(), 4u);
  brief.system = "be brief";
  EXPECT_EQ(prepare_prompts(data(), brief, cache_)[0], encode_chat(text_, {{"system", "be brief"}, {"user", "hello"}}));
  EXPECT_EQ(artefacts(), 6u);
  raw.raw = true;
  EXPECT_EQ(prepare_prompts(data(), raw, cache_)[0], encode_plain(text_, "hello"));
  EXPECT_EQ(artefacts(), 8u);
  PromptSet fewer = data();
  fewer.prompts.pop_back();
  fewer.prompts.pop_back();
  EXPECT_EQ(prepare_prompts(fewer, texts_, cache_).size(), 1u);
  EXPECT_EQ(artefacts(), 9u);
}

TEST_F(PreparedPromptsTest, TheDateCountsOnlyWhereTheTemplateTellsIt) {
  prepare_prompts(data(), texts_, cache_);
  chat_.date_iso = "2026-11-15T10:00:00";
  prepare_prompts(data(), texts_, cache_);
  EXPECT_EQ(artefacts(), 2u);
  text_.chat_template.emplace("{{ strftime_now('%H') }}{{ messages[0].content }}");
  const auto ten = prepare_prompts(data(), texts_, cache_);
  chat_.date_iso = "2026-11-15T11:00:00";
  EXPECT_NE(prepare_prompts(data(), texts_, cache_), ten);
}

TEST_F(PreparedPromptsTest, APromptThatCannotBeMadeHasNoIds) {
  text_.chat_template.emplace("{{ raise_exception('no') if messages[0].content == 'there' else 'x' }}");
  const auto ids = prepare_prompts(data(), texts_, cache_);
  EXPECT_FALSE(ids[0].empty());
  EXPECT_THAT(ids[1], IsEmpty());
}

TEST_F(PreparedPromptsTest, WithoutAnIdentityNothingIsKept) {
  texts_.identity.clear();
  EXPECT_EQ(prepare_prompts(data(), texts_, cache_).size(), 3u);
  EXPECT_EQ(artefacts(), 0u);
}

}  // namespace
}  // namespace espalier
