#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/answer_screen.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/options.h"

namespace espalier {
namespace {

struct GenerateFlags {
  EngineOptions engine;
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::string file;
  ChatFlags chat;
  bool raw = false;
  bool json = false;
};

nlohmann::ordered_json to_json(const TokenLogprob& entry, const Tokenizer& tokenizer) {
  return {{"token", entry.token}, {"text", tokenizer.decode(std::span(&entry.token, 1))}, {"logprob", entry.logprob}};
}

nlohmann::ordered_json to_json(const std::vector<Logprobs>& all, const Tokenizer& tokenizer) {
  auto list = nlohmann::ordered_json::array();
  for (const Logprobs& one : all) {
    auto entry = to_json(one.chosen, tokenizer);
    entry["top"] = nlohmann::ordered_json::array();
    for (const TokenLogprob& other : one.top) entry["top"].push_back(to_json(other, tokenizer));
    list.push_back(std::move(entry));
  }
  return list;
}

double tokens_per_second(const GenerateResult& result) {
  if (result.tokens.size() < 2 || result.decode_seconds <= 0) return 0;
  return static_cast<double>(result.tokens.size() - 1) / result.decode_seconds;
}

void print_json(const TextResult& result, const GenerateFlags& flags, const Engine& engine) {
  nlohmann::ordered_json object = {{"text", result.text},
                                   {"tokens", result.generated.tokens},
                                   {"prompt_tokens", result.prompt_tokens},
                                   {"finish_reason", name(result.generated.finish_reason)},
                                   {"prefill_seconds", result.generated.prefill_seconds},
                                   {"decode_seconds", result.generated.decode_seconds},
                                   {"tokens_per_second", tokens_per_second(result.generated)},
                                   {"seed", flags.sampling.seed},
                                   {"model", engine.path.string()},
                                   {"device", engine.device->name()}};
  if (flags.sampling.logprobs >= 0) object["logprobs"] = to_json(result.logprobs, *engine.text->tokenizer);
  // A token of its own may be half a character: such bytes are shown as U+FFFD.
  print(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

int run_generate(const GenerateFlags& flags) {
  const TextOptions options = text_options(flags.sampling);
  if (flags.sampling.logprobs >= 0 && !flags.json) throw InputError("--logprobs: only with --json");
  if (flags.raw && !(flags.chat.system.empty() && flags.chat.variables.empty()))
    throw InputError("--system, --template-variables: not with --raw, which uses no chat template");
  const std::string prompt = read_prompt(flags.prompt, flags.file);
  if (prompt.empty()) throw InputError("the prompt is empty");
  const Engine engine = open_engine(flags.engine);
  Session session(*engine.text, *engine.decoder, chat_context(flags.chat));
  session.reset(flags.chat.system);
  TextResult result;
  {
    const InterruptGuard interrupt;
    AnswerScreen screen(interrupt, !flags.json);
    const TextEvents events = screen.events();
    result = flags.raw ? session.complete(prompt, options, events) : session.ask(prompt, options, events);
  }
  if (flags.json) {
    print_json(result, flags, engine);
  } else {
    print("\n");
  }
  flush_output();
  const GenerateResult& generated = result.generated;
  if (flags.engine.verbose)
    fmt::print(stderr, "{} prompt tokens in {:.2f} s, {} tokens at {:.1f} per second, finished by {}\n",
               result.prompt_tokens, generated.prefill_seconds, generated.tokens.size(), tokens_per_second(generated),
               name(generated.finish_reason));
  if (generated.finish_reason != FinishReason::cancelled) return 0;
  fmt::print(stderr, "espalier: interrupted after {} tokens\n", generated.tokens.size());
  return 1;
}

}  // namespace

Command add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "answer a prompt");
  auto flags = std::make_shared<GenerateFlags>();
  command->add_option("PROMPT", flags->prompt, "the prompt; - reads standard input");
  command->add_option("--file", flags->file, "read the prompt from a file")->type_name("FILE");
  command->add_flag("--raw", flags->raw, "the prompt as it is, without the model's chat template");
  command->add_flag("--json", flags->json, "print one JSON object instead of the text");
  add_chat_flags(*command, flags->chat);
  add_engine_flags(*command, flags->engine);
  add_sampling_flags(*command, flags->sampling);
  return [flags] { return run_generate(*flags); };
}

}  // namespace espalier
