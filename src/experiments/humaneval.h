// HumanEval's own scoring (arXiv 2107.03374): an answer passes when the given tests run through on it. What of a chat
// answer is the code, and which program judges it. Pure functions; whoever runs the program needs a sandbox
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

// The program that judges an answer; it prints `proof` as its last line when, and only when, every test has run
// through: an exit status alone could be the answer's own doing. Code that defines the function follows the prompt,
// whose imports and helpers it may use; any other code is taken for the body, and indented where it is not.
std::string judging_program(const HumanEvalProblem& problem, std::string_view answer, std::string_view proof);

}  // namespace espalier
