#include "experiments/run_beginning.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_field.h"
#include "base/json_text.h"
#include "base/mapped_file.h"

namespace espalier {
namespace {

constexpr std::ptrdiff_t kWordsOfCommand = 3;  // the program, eval, run

RunBeginning beginning_in(const std::filesystem::path& file) {
  const nlohmann::json object = parse_json(read_text_file(file), file.string());
  const JsonField record(object, file.string());
  RunBeginning beginning;
  if (const auto directory = record.find("directory")) beginning.directory = directory->string();
  for (const JsonField& word : record.at("command").elements()) beginning.words.push_back(word.string());
  if (std::ssize(beginning.words) < kWordsOfCommand || beginning.words[1] != "eval" || beginning.words[2] != "run")
    input_error("{}: the command is none of eval run, expected --data or --suite", file.string());
  beginning.words.erase(beginning.words.begin());
  return beginning;
}

bool asks_unconfined(const std::vector<std::string>& words) {
  return std::ranges::find(words, "--execute-model-code=unconfined") != words.end();
}

}  // namespace

RunBeginning read_beginning(const std::filesystem::path& folder) {
  for (const char* name : {"manifest.json", "suite.json"})
    if (std::filesystem::exists(folder / name)) return beginning_in(folder / name);
  input_error("-o {}: neither manifest.json nor suite.json, expected a directory to resume", folder.string());
}

std::vector<std::string> words_to_resume(const RunBeginning& beginning, const std::vector<std::string>& now,
                                         const std::string& out) {
  if (asks_unconfined(beginning.words) && !asks_unconfined(now))
    throw InputError(
        "--resume: the suite ran code of answers unconfined, expected --execute-model-code=unconfined once more");
  std::vector<std::string> words = beginning.words;
  words.insert(words.end(), now.begin() + std::min(kWordsOfCommand, std::ssize(now)), now.end());
  words.insert(words.end(), {"-o", out});
  return words;
}

}  // namespace espalier
