// HumanEval's own scoring (arXiv 2107.03374): an answer passes when the given tests run through on it. What of a chat
// answer is the code, and which programs judge it. Pure functions; whoever runs the programs needs a sandbox
// (sandbox.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct HumanEvalProblem {
  std::string task_id = {};
  std::string prompt = {};  // imports, helpers, signature and docstring
  std::string entry_point = {};
  std::string test = {};  // defines check(candidate)
};

// From a data set with `task_id`, `prompt`, `entry_point` and `test`; lines without `test` are of another set and left
// out. Throws InputError "path:line: ..." when a line is no such object.
std::vector<HumanEvalProblem> read_humaneval(const std::filesystem::path& path);

// The code of an answer: the first block between ``` fences that defines the function, else the first block, else the
// whole answer. A fence that is never closed goes to the end, as in an answer that was cut.
std::string code_of_answer(std::string_view answer, std::string_view entry_point);

// Two programs that judge an answer together (run_sandboxed_pair). `candidate` has the answer's code and is told the
// arguments of a call, no more; `judge` has the tests, and asks it for every call that they make. Only plain values
// pass between them, spelled out as JSON. The judge ends with status 0 when, and only when, every test has run through:
// it executes nothing of the answer, and its memory, its descriptors and its expected values are out of the answer's
// reach. Code that defines the function follows the prompt, whose imports and helpers it may use; any other code is
// taken for the body, and indented where it is not.
struct Trial {
  std::string judge = {};
  std::string candidate = {};
};
Trial trial_of(const HumanEvalProblem& problem, std::string_view answer);

}  // namespace espalier
