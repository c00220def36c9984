#include "experiments/humaneval.h"

#include <fmt/format.h>
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
  const Trial trial = trial_of(kTwice, answer);
  return run_sandboxed_pair(trial.judge, trial.candidate, Confinement::limits_only).end == SandboxEnd::finished;
}

// An answer that is right, of a function with one argument.
bool passes(const std::string& test, const std::string& code) {
  const HumanEvalProblem problem{.task_id = "HumanEval/1",
                                 .prompt = "def f(x):\n    \"\"\"Does it.\"\"\"\n",
                                 .entry_point = "f",
                                 .test = "def check(candidate):\n    " + test + "\n"};
  const Trial trial = trial_of(problem, "```python\n" + code + "\n```");
  return run_sandboxed_pair(trial.judge, trial.candidate, Confinement::limits_only).end == SandboxEnd::finished;
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
  EXPECT_FALSE(passes("```python\ndef twice(x:\n    return 2 * x\n```"));
}

TEST(HumanEval, ItsOwnIdeaOfBeingEqualDoesNotHelp) {
  EXPECT_FALSE(
      passes("```python\nclass Equal:\n    def __eq__(self, other): return True\n"
             "def twice(x):\n    return Equal()\n```"));
  EXPECT_FALSE(
      passes("```python\nclass Equal(int):\n    def __eq__(self, other): return True\n"
             "def twice(x):\n    return Equal(1)\n```"));
}

TEST(HumanEval, NeitherTestsNorAProofAreWithinReachOfTheAnswer) {
  const Trial trial = trial_of(kTwice, "    return 2 * x\n");
  EXPECT_EQ(trial.candidate.find("assert"), std::string::npos);
  EXPECT_EQ(trial.judge.find("return 2 * x"), std::string::npos);
  // All that it can read of its own input and channel, and all that it can say there.
  EXPECT_FALSE(
      passes("```python\nimport os, sys\nos.lseek(0, 0, 0)\nseen = os.read(0, 1 << 20)\n"
             "os.write(1, seen)\nsys.stdout.flush()\nos._exit(0)\ndef twice(x): return 0\n```"));
  EXPECT_FALSE(
      passes("```python\nimport os\nos.write(3, b'\"ready\"\\n' * 9)\nos._exit(0)\n"
             "def twice(x): return 0\n```"));
  EXPECT_FALSE(
      passes("```python\nimport os\nos.write(3, b'{\"passed\": true}\\n' * 9)\n"
             "def twice(x): return 0\n```"));
}

TEST(HumanEval, EveryPlainValuePassesBetweenTheTwoAsItIs) {
  for (const char* value : {"None", "True", "7", "10 ** 5000", "-0.5", "float('inf')", "'a\\u00e9\\n\"'",
                            "[1, (2, 3), {4}]", "{'a': [1], 2: ()}", "b'\\x00\\xff'", "1j", "frozenset({1})", "set()",
                            "__import__('fractions').Fraction(1, 3)"}) {
    const std::string text = value;
    EXPECT_TRUE(passes("v = " + text + "; r = candidate(v); assert r == v and type(r) is type(v)",
                       "def f(x):\n    assert x == " + text + "\n    return x"))
        << text;
  }
  EXPECT_TRUE(passes("assert candidate('aab') == {'a': 2, 'b': 1}",
                     "import collections\ndef f(x):\n    return collections.Counter(x)"));
}

TEST(HumanEval, WhatAnAnswerRaisesIsRaisedInTheTest) {
  EXPECT_TRUE(
      passes("\n    try: candidate(1)\n    except ValueError as e: assert str(e) == 'no'\n    else: assert False",
             "def f(x):\n    raise ValueError('no')"));
  EXPECT_FALSE(passes("candidate(1)", "def f(x):\n    raise ValueError('no')"));
}

TEST(HumanEval, ATestMayUseTheHelpersOfThePrompt) {
  HumanEvalProblem problem = kTwice;
  problem.test = "def check(candidate):\n    assert candidate(helper(2)) == 4\n";
  // An answer that changes the helper changes its own only.
  const auto end = [&](const char* code) {
    const Trial trial = trial_of(problem, fmt::format("```python\ndef helper(x): return 0\n{}\n```", code));
    return run_sandboxed_pair(trial.judge, trial.candidate, Confinement::limits_only).end;
  };
  EXPECT_EQ(end("def twice(x):\n    return 2 * x"), SandboxEnd::finished);
  EXPECT_EQ(end("def twice(x):\n    return 2 * helper(x)"), SandboxEnd::failed);
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
