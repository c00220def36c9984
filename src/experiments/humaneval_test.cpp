#include "experiments/humaneval.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "experiments/sandbox.h"
#include "format/testing/temporary_folder.h"

namespace espalier {
namespace {

const HumanEvalProblem kTwice{
    .task_id = "HumanEval/0",
    .prompt = "import math\n\ndef helper(x):\n    return x\n\ndef twice(x):\n    \"\"\"Twice x.\"\"\"\n",
    .entry_point = "twice",
    .test = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n"};

bool passes(std::string_view answer) {
  const SandboxResult result = run_sandboxed(judging_program(kTwice, answer, "proof"), Confinement::limits_only);
  return result.end == SandboxEnd::finished && result.output.ends_with("\nproof\n");
}

TEST(HumanEval, TheCodeIsTheFirstBlockThatDefinesTheFunction) {
  EXPECT_EQ(code_of_answer("Sure:\n```python\ndef twice(x):\n    return 2\n```\nand\n```\nno\n```", "twice"),
            "def twice(x):\n    return 2\n");
  EXPECT_EQ(code_of_answer("```\nimport os\n```\n```py\ndef twice(x): pass\n```", "twice"), "def twice(x): pass\n");
  EXPECT_EQ(code_of_answer("```\nx\n```\n```\ny\n```", "twice"), "x\n");
  EXPECT_EQ(code_of_answer("```python\ndef twice(x):\n    ret", "twice"), "def twice(x):\n    ret\n");
  EXPECT_EQ(code_of_answer("    return 2 * x\n", "twice"), "    return 2 * x\n");
}

TEST(HumanEval, ARightAnswerPassesInEveryFormItMayHave) {
  EXPECT_TRUE(passes("```python\ndef twice(x):\n    return 2 * x\n```"));
  EXPECT_TRUE(passes("def twice(x):\n    return 2 * x\n"));
  EXPECT_TRUE(passes("    return helper(x) + int(math.floor(x))\n"));
  EXPECT_TRUE(passes("```\nreturn 2 * x\n```"));
}

TEST(HumanEval, AWrongOneDoesNotWhateverItDoes) {
  EXPECT_FALSE(passes("```python\ndef twice(x):\n    return x * x\n```"));
  EXPECT_FALSE(passes("I cannot help with that."));
  EXPECT_FALSE(passes(""));
  EXPECT_FALSE(passes("```python\nimport os\ndef twice(x):\n    os._exit(0)\n```"));
  EXPECT_FALSE(passes("```python\nimport sys\nsys.exit(0)\ndef twice(x):\n    return 0\n```"));
}

TEST(HumanEval, ProblemsAreReadAndOtherLinesLeftOut) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("a.jsonl",
                   "{\"question_id\": 1, \"turns\": [\"hi\"]}\n\n"
                   "{\"task_id\": \"H/1\", \"prompt\": \"p\", \"entry_point\": \"f\", \"test\": \"t\"}\n");
  const auto problems = read_humaneval(path);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].entry_point, "f");
  const auto wrong = folder.write("b.jsonl", "{\"task_id\": 3, \"test\": \"t\"}\n");
  EXPECT_THROW(read_humaneval(wrong), InputError);
}

}  // namespace
}  // namespace espalier
