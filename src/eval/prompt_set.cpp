#include "eval/prompt_set.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "base/untrusted_text.h"

namespace espalier {
namespace {

constexpr const char* kIdNames[] = {"id", "question_id", "prompt_id", "task_id"};

// One line of the file, and where it is.
struct Line {
  const std::filesystem::path& path;
  std::int64_t number;
  std::string_view text;

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    input_error("{}:{}: {}", path.string(), number, fmt::format(format, std::forward<Args>(args)...));
  }
};

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r") == std::string_view::npos;
}

// A complaint counts lines from the text it was given: the second look is at one in which the line has its number.
nlohmann::json parse_line(const Line& line) {
  try {
    return parse_json(line.text, line.path.string());
  } catch (const InputError&) {
    return parse_json(std::string(static_cast<std::size_t>(line.number - 1), '\n') + std::string(line.text),
                      line.path.string());
  }
}

PromptId read_id(const nlohmann::json& object, const Line& line) {
  for (const char* name : kIdNames) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number_integer() && (!found->is_number_unsigned() || found->get<std::uint64_t>() <= INT64_MAX))
      return found->get<std::int64_t>();
    line.refuse("{}: expected a text or an integer, got {}", name, in_quotes(found->dump()));
  }
  line.refuse("no id: expected id, question_id, prompt_id or task_id");
}

std::string read_turn(const nlohmann::json& value, std::string_view name, const Line& line) {
  if (!value.is_string()) line.refuse("{}: expected a text, got {}", name, in_quotes(value.dump()));
  std::string turn = value.get<std::string>();
  if (turn.empty()) line.refuse("{}: expected some text, got an empty one", name);
  return turn;
}

std::vector<std::string> read_turns(const nlohmann::json& object, const Line& line) {
  const auto turns = object.find("turns");
  if (turns == object.end()) {
    const auto prompt = object.find("prompt");
    if (prompt == object.end()) line.refuse("expected turns or prompt, got neither");
    return {read_turn(*prompt, "prompt", line)};
  }
  if (!turns->is_array() || turns->empty())
    line.refuse("turns: expected a list of texts, got {}", in_quotes(turns->dump()));
  std::vector<std::string> texts;
  for (const nlohmann::json& turn : *turns)
    texts.push_back(read_turn(turn, fmt::format("turn {}", texts.size() + 1), line));
  return texts;
}

EvalPrompt read_prompt_line(const Line& line) {
  const nlohmann::json object = parse_line(line);
  if (!object.is_object()) line.refuse("expected a JSON object, got {}", in_quotes(line.text));
  EvalPrompt prompt;
  prompt.id = read_id(object, line);
  prompt.turns = read_turns(object, line);
  prompt.line = line.number;
  return prompt;
}

}  // namespace

std::int64_t PromptSet::turns() const {
  std::int64_t count = 0;
  for (const EvalPrompt& prompt : prompts) count += static_cast<std::int64_t>(prompt.turns.size());
  return count;
}

std::string PromptSet::place(const EvalPrompt& prompt) const {
  return fmt::format("{}:{}", files[prompt.file].path.string(), prompt.line);
}

PromptSet read_prompt_set(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  PromptSet set;
  set.files.push_back({path, sha256(std::as_bytes(std::span(text))), path.stem().string()});
  std::map<PromptId, std::int64_t> lines;
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const Line line{path, number, rest.substr(0, end)};
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_blank(line.text)) continue;
    EvalPrompt prompt = read_prompt_line(line);
    const auto [first, is_new] = lines.emplace(prompt.id, number);
    if (!is_new) line.refuse("id {} is on line {} already", in_quotes(text_of(prompt.id)), first->second);
    prompt.set = set.files[0].set;
    set.prompts.push_back(std::move(prompt));
  }
  if (set.prompts.empty()) input_error("{}: expected a JSON object on each line, got an empty file", path.string());
  return set;
}

std::vector<std::string> first_turns(const std::filesystem::path& path) {
  std::vector<std::string> texts;
  for (EvalPrompt& prompt : read_prompt_set(path).prompts) texts.push_back(std::move(prompt.turns.front()));
  return texts;
}

PromptSet join(std::vector<PromptSet> sets) {
  PromptSet whole;
  for (PromptSet& set : sets) {
    for (EvalPrompt& prompt : set.prompts) prompt.file += whole.files.size();
    for (PromptFile& file : set.files) {
      for (const PromptFile& other : whole.files)
        if (other.set == file.set)
          input_error("--data: {} and {} are both named {}, expected different names", other.path.string(),
                      file.path.string(), in_quotes(file.set));
      whole.files.push_back(std::move(file));
    }
    std::ranges::move(set.prompts, std::back_inserter(whole.prompts));
  }
  return whole;
}

void keep_prompts(PromptSet& set, std::int64_t skip, std::int64_t limit) {
  check(skip >= 0 && limit >= 1, "keep_prompts: {} from {}", limit, skip);
  const auto count = static_cast<std::int64_t>(set.prompts.size());
  if (skip >= count) input_error("--skip: expected less than {}, the prompts there are, got {}", count, skip);
  set.prompts.erase(set.prompts.begin(), set.prompts.begin() + skip);
  set.prompts.resize(static_cast<std::size_t>(std::min(limit, count - skip)));
}

}  // namespace espalier
