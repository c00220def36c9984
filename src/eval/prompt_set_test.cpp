#include "eval/prompt_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/testing/complaint.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PromptSetTest : public ::testing::Test {
 protected:
  PromptSet read(std::string_view text) const { return read_prompt_set(folder_.write("p.jsonl", text)); }
  std::string refusal(std::string_view text) const {
    return complaint([&] { read(text); });
  }
  TemporaryFolder folder_;
};

TEST_F(PromptSetTest, AnIdIsTheFirstOfFourNamesAndKeepsItsKind) {
  const PromptSet set = read(
      "{\"id\": 7, \"task_id\": \"no\", \"prompt\": \"a\"}\n{\"question_id\": 81, \"prompt\": \"a\"}\n"
      "{\"prompt_id\": \"p\", \"prompt\": \"a\"}\n{\"task_id\": \"HumanEval/0\", \"prompt\": \"a\"}\n");
  ASSERT_EQ(set.prompts.size(), 4u);
  EXPECT_EQ(set.prompts[0].id, PromptId(std::int64_t{7}));
  EXPECT_EQ(set.prompts[1].id, PromptId(std::int64_t{81}));
  EXPECT_EQ(set.prompts[2].id, PromptId("p"));
  EXPECT_EQ(text_of(set.prompts[3].id), "HumanEval/0");
}

TEST_F(PromptSetTest, APromptIsOneTurnUnchangedAndTurnsAreSeveral) {
  const PromptSet set = read("{\"id\": 1, \"prompt\": \" def f():\\n\"}\n{\"id\": 2, \"turns\": [\"a\", \"b\"]}");
  EXPECT_THAT(set.prompts[0].turns, ElementsAre(" def f():\n"));
  EXPECT_THAT(set.prompts[1].turns, ElementsAre("a", "b"));
  EXPECT_EQ(set.turns(), 3);
}

TEST_F(PromptSetTest, OfSeveralTurnsTheFirstOpensTheConversation) {
  const auto path = folder_.write("p.jsonl", "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 2, \"turns\": [\"b\", \"c\"]}");
  EXPECT_THAT(first_turns(path), ElementsAre("a", "b"));
}

TEST_F(PromptSetTest, BlankLinesCountAsLinesAndAreNoPrompts) {
  const PromptSet set = read("\n{\"id\": 1, \"prompt\": \"a\"}\r\n  \n{\"id\": 2, \"prompt\": \"b\"}\n\n");
  ASSERT_EQ(set.prompts.size(), 2u);
  EXPECT_EQ(set.prompts[0].line, 2);
  EXPECT_EQ(set.prompts[1].line, 4);
}

TEST_F(PromptSetTest, TheHashIsThatOfTheWholeFile) {
  EXPECT_EQ(read("{\"id\":1,\"prompt\":\"a\"}").files[0].sha256, read("{\"id\":1,\"prompt\":\"a\"}").files[0].sha256);
  EXPECT_NE(read("{\"id\":1,\"prompt\":\"a\"}").files[0].sha256, read("{\"id\":1,\"prompt\":\"a\"}\n").files[0].sha256);
}

TEST_F(PromptSetTest, EveryBadLineIsReportedByItsNumber) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"prompt\": \"a\"}", "p.jsonl:3: no id: expected id, question_id, prompt_id or task_id"},
      {"{\"id\": 1.5, \"prompt\": \"a\"}", "p.jsonl:3: id: expected a text or an integer, got \"1.5\""},
      {"{\"id\": 18446744073709551615, \"prompt\": \"a\"}", "p.jsonl:3: id: expected a text or an integer"},
      {"{\"id\": 1}", "p.jsonl:3: expected turns or prompt, got neither"},
      {"{\"id\": 1, \"prompt\": 3}", "p.jsonl:3: prompt: expected a text, got \"3\""},
      {"{\"id\": 1, \"prompt\": \"\"}", "p.jsonl:3: prompt: expected some text, got an empty one"},
      {"{\"id\": 1, \"turns\": []}", "p.jsonl:3: turns: expected a list of texts, got \"[]\""},
      {"{\"id\": 1, \"turns\": \"a\"}", "p.jsonl:3: turns: expected a list of texts"},
      {"{\"id\": 1, \"turns\": [\"a\", null]}", "p.jsonl:3: turn 2: expected a text, got \"null\""},
      {"[1]", "p.jsonl:3: expected a JSON object"},
      {"{\"id\": 1,", "p.jsonl:3:9: not JSON"},
      {"{\"id\": 1, \"id\": 2, \"prompt\": \"a\"}", "p.jsonl:3:"},
      {"{\"id\": 9, \"prompt\": \"a\"}", "p.jsonl:3: id \"9\" is on line 1 already"},
  };
  for (const auto& [line, message] : cases)
    EXPECT_THAT(refusal(std::string("{\"id\": 9, \"prompt\": \"a\"}\n\n") + line + "\n"), HasSubstr(message)) << line;
}

TEST_F(PromptSetTest, AFileWithoutPromptsIsRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("got an empty file"));
  EXPECT_THAT(refusal("\n \n"), HasSubstr("got an empty file"));
  EXPECT_THAT(complaint([&] { read_prompt_set(folder_ / "absent"); }), HasSubstr("absent"));
}

TEST_F(PromptSetTest, BothBenchmarksAreRead) {
  const std::filesystem::path folder = std::filesystem::path(ESPALIER_TEST_DATA) / "../../data/eval";
  const PromptSet bench = read_prompt_set(folder / "mt_bench.jsonl"),
                  code = read_prompt_set(folder / "humaneval.jsonl");
  EXPECT_EQ(bench.prompts.size(), 80u);
  EXPECT_EQ(bench.turns(), 160);
  EXPECT_EQ(bench.prompts[0].id, PromptId(std::int64_t{81}));
  EXPECT_EQ(code.prompts.size(), 164u);
  EXPECT_EQ(code.turns(), 164);
  EXPECT_EQ(code.prompts[163].id, PromptId("HumanEval/163"));
}

TEST_F(PromptSetTest, WhatTheLoadBenchmarkAsksIsRead) {
  const std::filesystem::path folder = std::filesystem::path(ESPALIER_TEST_DATA) / "../../data/eval";
  EXPECT_EQ(first_turns(folder / "mt_bench.jsonl").size(), 80u);
  EXPECT_EQ(first_turns(folder / "outside.jsonl").size(), 100u);
  EXPECT_EQ(first_turns(folder / "rewrite.jsonl").size(), 30u);
  EXPECT_THAT(complaint([&] { first_turns(folder / "absent.jsonl"); }), HasSubstr("absent.jsonl"));
}

TEST_F(PromptSetTest, SeveralFilesFollowEachOtherAndAreToldApart) {
  const std::string text = "{\"id\": 1, \"prompt\": \"a\"}\n{\"id\": 2, \"prompt\": \"b\"}\n";
  const auto first = folder_.write("first.jsonl", text), second = folder_.write("second.jsonl", text);
  const PromptSet set = join({read_prompt_set(first), read_prompt_set(second)});
  ASSERT_EQ(set.prompts.size(), 4u);
  EXPECT_EQ(set.prompts[1].set, "first");
  EXPECT_EQ(set.prompts[2].set, "second");
  EXPECT_EQ(set.prompts[2].id, set.prompts[0].id);
  EXPECT_EQ(set.place(set.prompts[3]), second.string() + ":2");
  EXPECT_THAT(complaint([&] {
                join({read_prompt_set(first), read_prompt_set(first)});
              }),
              HasSubstr("are both named \"first\""));
}

TEST_F(PromptSetTest, SkipAndLimitKeepAPartOfTheSet) {
  const std::string text = "{\"id\":1,\"prompt\":\"a\"}\n{\"id\":2,\"prompt\":\"a\"}\n{\"id\":3,\"prompt\":\"a\"}\n";
  const auto ids = [&](std::int64_t skip, std::int64_t limit) {
    PromptSet set = read(text);
    keep_prompts(set, skip, limit);
    std::string all;
    for (const EvalPrompt& prompt : set.prompts) all += text_of(prompt.id);
    return all;
  };
  EXPECT_EQ(ids(0, 2), "12");
  EXPECT_EQ(ids(1, 1), "2");
  EXPECT_EQ(ids(2, INT64_MAX), "3");
  EXPECT_THAT(complaint([&] { ids(3, 1); }), HasSubstr("--skip: expected less than 3"));
}

}  // namespace
}  // namespace espalier
