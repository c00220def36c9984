#include "experiments/humaneval.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/mapped_file.h"

namespace espalier {
namespace {

constexpr std::string_view kFence = "```";

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view without_indent(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view() : line.substr(first);
}

bool defines(std::string_view code, std::string_view function) {
  const std::string definition = fmt::format("def {}(", function);
  while (!code.empty())
    if (next_line(code).starts_with(definition)) return true;
  return false;
}

std::vector<std::string> fenced_blocks(std::string_view answer) {
  std::vector<std::string> blocks;
  bool inside = false;
  while (!answer.empty()) {
    const std::string_view line = next_line(answer);
    if (without_indent(line).starts_with(kFence)) {
      inside = !inside;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back().append(line).push_back('\n');
    }
  }
  return blocks;
}

// Where its first line is not indented, all of it is.
std::string as_body(std::string_view code) {
  std::string_view rest = code;
  while (!rest.empty()) {
    const std::string_view line = next_line(rest);
    if (without_indent(line).empty()) continue;
    if (without_indent(line).size() < line.size()) return std::string(code);
    break;
  }
  std::string body;
  while (!code.empty()) body.append("    ").append(next_line(code)).push_back('\n');
  return body;
}

}  // namespace

std::vector<HumanEvalProblem> read_humaneval(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  std::vector<HumanEvalProblem> problems;
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = next_line(rest);
    if (without_indent(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    const nlohmann::json object = parse_json(line, where);
    const JsonField field(object, where);
    if (!field.find("test")) continue;
    problems.push_back({.task_id = field.at("task_id").string(),
                        .prompt = field.at("prompt").string(),
                        .entry_point = field.at("entry_point").string(),
                        .test = field.at("test").string()});
  }
  return problems;
}

std::string code_of_answer(std::string_view answer, std::string_view entry_point) {
  const std::vector<std::string> blocks = fenced_blocks(answer);
  for (const std::string& block : blocks)
    if (defines(block, entry_point)) return block;
  return blocks.empty() ? std::string(answer) : blocks.front();
}

std::string judging_program(const HumanEvalProblem& problem, std::string_view answer, std::string_view proof) {
  const std::string code = code_of_answer(answer, problem.entry_point);
  const std::string solution = defines(code, problem.entry_point) ? "\n" + code : as_body(code);
  return fmt::format("{}{}\n{}\ncheck({})\nprint('\\n{}')\n", problem.prompt, solution, problem.test,
                     problem.entry_point, proof);
}

}  // namespace espalier
