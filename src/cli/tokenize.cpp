#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/output.h"

namespace espalier {
namespace {

struct TokenizeFlags {
  EngineOptions engine;
  std::optional<std::string> text;
  std::string file;
  bool special = false;
  bool chat = false;
  bool json = false;
};

std::vector<TokenId> encode(const ModelText& text, const TokenizeFlags& flags, const std::string& input) {
  if (flags.chat) return encode_chat(text, {{"user", input}});
  return text.tokenizer->encode(input, flags.special);
}

int run_tokenize(const TokenizeFlags& flags) {
  if (flags.chat && flags.special) throw InputError("--chat and --special: expected only one of them");
  const std::string input = read_prompt(flags.text, flags.file);
  const ModelText text = load_model_text(find_model(flags.engine.model, process_places()));
  const std::vector<TokenId> ids = encode(text, flags, input);
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string bytes = text.tokenizer->bytes(ids[i], i == 0);
    const std::string shown = nlohmann::json(bytes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (flags.json) {
      list.push_back({{"id", ids[i]}, {"text", bytes}, {"special", text.tokenizer->is_special(ids[i])}});
    } else {
      print(fmt::format("{:>7}  {}{}\n", ids[i], shown, text.tokenizer->is_special(ids[i]) ? "  control token" : ""));
    }
  }
  if (flags.json) print(list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  flush_output();
  return 0;
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "show the tokens of a text");
  auto flags = std::make_shared<TokenizeFlags>();
  command->add_option("TEXT", flags->text, "the text; - reads standard input");
  command->add_option("--file", flags->file, "read the text from a file")->type_name("FILE");
  command->add_flag("--special", flags->special, "recognise control tokens in the text");
  command->add_flag("--chat", flags->chat, "the text as a user's message in the model's chat template");
  command->add_flag("--json", flags->json, "print a JSON list");
  add_model_flag(*command, flags->engine);
  return [flags] { return run_tokenize(*flags); };
}

}  // namespace espalier
