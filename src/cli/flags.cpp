#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/text_stream.h"
#include "base/untrusted_text.h"
#include "device/cpu/isa.h"
#include "engine/model_advice.h"

namespace espalier {
namespace {

// "12=-1.5"; a value of -inf bans the token.
std::pair<std::int32_t, float> parse_bias(const std::string& text) {
  const std::size_t equals = text.find('=');
  std::int32_t id = 0;
  const char* id_end = text.data() + std::min(equals, text.size());
  const auto parsed = std::from_chars(text.data(), id_end, id);
  if (equals == std::string::npos || parsed.ec != std::errc() || parsed.ptr != id_end || id < 0)
    input_error("--logit-bias: expected ID=VALUE, got {}", text);
  char* end = nullptr;
  const std::string value = text.substr(equals + 1);
  const float bias = std::strtof(value.c_str(), &end);
  if (value.empty() || *end != '\0' || std::isnan(bias) || bias == INFINITY)
    input_error("--logit-bias: expected ID=VALUE with a number, got {}", text);
  return {id, bias};
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    input_error("--seed: expected a whole number from 0 to {}, got {}", UINT64_MAX, in_quotes(text));
  return seed;
}

void set_bias(const std::vector<std::string>& words, SamplingOptions& sampling) {
  for (const std::string& word : words) {
    const auto [id, bias] = parse_bias(word);
    sampling.logit_bias.insert_or_assign(id, bias);
  }
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (Isa isa : supported_isas()) names.emplace_back(name(isa));
  return names;
}

std::string read_standard_input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (std::ferror(stdin) != 0) input_error("standard input: cannot read");  // the stream takes an error for the end
  return text;
}

}  // namespace

HelpGroup::HelpGroup(CLI::App& app, const std::string& title) : app_(app) {
  app_.option_defaults()->group(title);
}

HelpGroup::~HelpGroup() {
  app_.option_defaults()->group("Options");
}

void add_model_flag(CLI::App& app, EngineOptions& options) {
  app.add_option("-m,--model", options.model, "GGUF file or Hugging Face folder; without it the default model")
      ->check(
          CLI::Validator([](const std::string& text) { return text.empty() ? "expected a path, got none" : ""; }, ""))
      ->type_name("PATH");
}

void add_threads_flag(CLI::App& app, int& threads, const std::string& what) {
  app.add_option("-t,--threads", threads, what + "; 0: one per core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->type_name("N");
}

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  EngineOptions& options = flags.options;
  const HelpGroup group(app, "Engine");
  add_model_flag(app, options);
  add_mode_flags(app, flags.modes);
  add_threads_flag(app, options.threads);
  app.add_option("--isa", options.isa, "the instruction set of the kernels; without it the fastest (see inspect --cpu)")
      ->check(CLI::IsMember(isa_names()))
      ->type_name("NAME");
  app.add_option_function<std::string>(
         "--kv", [&options](const std::string& type) { options.kv_type = parse_dtype(type); },
         "element type of the KV cache: f16, bf16 or f32")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->default_str("f16")
      ->type_name("TYPE");
  app.add_option_function<std::string>(
         "--weights", [&options](const std::string& mode) { options.weights = parse_weight_mode(mode); },
         "weights as in the file, widened to f32, or quantised to q8_0")
      ->check(CLI::IsMember({"file", "f32", "q8_0"}))
      ->default_str("file")
      ->type_name("TYPE");
  app.add_option_function<std::string>(
         "--activations", [&options](const std::string& word) { options.activations = parse_activations(word); },
         "inputs of float weights on a GPU: two terms of 16 bits, or one (bf16), faster for many rows and less exact")
      ->check(CLI::IsMember({"two-terms", "bf16"}))
      ->default_str("two-terms")
      ->type_name("TYPE");
  app.add_option("-c,--context", options.context,
                 "positions of the context; 0: what the model was made for, at most " + std::to_string(kDefaultContext))
      ->check(CLI::NonNegativeNumber)
      ->check(CLI::Validator(
          [](const std::string& text) { return text == "1" ? "expected at least 2 positions, or 0, got 1" : ""; }, ""))
      ->default_str("0")
      ->type_name("N");
  app.add_flag("-v,--verbose", flags.verbose, "say more on standard error");
}

void add_sampling_flags(CLI::App& app, TextOptions& options) {
  const HelpGroup group(app, "Sampling");
  GenerateOptions& generate = options.generate;
  SamplingOptions& sampling = generate.sampling;
  app.add_option("-n,--max-tokens", generate.max_tokens, "the most tokens of an answer")->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "0: the most probable token, always")->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "draw from the k most probable tokens; 0: all")->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "draw from the most probable tokens that together reach p; 1: all")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "leave out tokens below this share of the largest probability; 0: none")
      ->capture_default_str();
  app.add_option("--repeat-penalty", sampling.repeat_penalty, "for tokens of prompt and answer; 1: off")
      ->capture_default_str();
  app.add_option("--presence-penalty", sampling.presence_penalty, "once for a token of the answer; 0: off")
      ->capture_default_str();
  app.add_option("--frequency-penalty", sampling.frequency_penalty, "each time a token was in the answer; 0: off")
      ->capture_default_str();
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias", [&sampling](const std::vector<std::string>& words) { set_bias(words, sampling); },
         "add VALUE to the logit of token ID; may be repeated")
      ->type_name("ID=VALUE")
      ->allow_extra_args(false);
  app.add_option_function<std::string>(
         "--seed", [&generate](const std::string& text) { generate.seed = parse_seed(text); },
         "the same seed gives the same text")
      ->default_str("0")
      ->type_name("N");
  app.add_option("--stop", options.stop, "end the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", options.ignore_eos, "go on after the model's end-of-answer token");
  app.add_option("--logprobs", generate.logprobs, "report the N most probable tokens of each position (with --json)")
      ->check(CLI::Range(std::int64_t{0}, kMostLogprobs))
      ->type_name("N");
}

void add_chat_flags(CLI::App& app, ChatSettings& settings) {
  app.add_option("--system", settings.system, "the system message of the chat")
      ->check(CLI::Validator(
          [](const std::string& text) { return text.empty() ? "expected some text, got an empty one" : ""; }, ""))
      ->type_name("TEXT");
  app.add_option("--template-variables", settings.variables,
                 "variables of the chat template, for example {\"enable_thinking\": false}")
      ->type_name("JSON");
  app.add_option("--date", settings.date, "the day that templates which tell the date are given; without it today")
      ->type_name("YYYY-MM-DD");
}

void add_opening_flags(CLI::App& app, ChatSettings& settings) {
  app.add_flag("--system-default", settings.template_system,
               "the system message of the model's own template, also for a model that is known to answer better "
               "behind another or none");
  app.add_option_function<std::string>(
         "--chat-template", [&settings](const std::string& file) { settings.chat_template = read_text_stream(file); },
         "a file with a chat template (Jinja) to use in place of the model's own")
      ->type_name("FILE");
}

void check_chat_settings(const ChatSettings& settings) {
  if (settings.template_system && !settings.system.empty())
    throw InputError("--system and --system-default: expected only one of them");
}

void add_force_flag(CLI::App& app, Existing& existing) {
  app.add_flag_callback(
      "--force", [&existing] { existing = Existing::replace; }, "replace a file that exists");
}

void add_record_flags(CLI::App& app, RecordOptions& options) {
  app.add_option("--trace", options.trace, "write every round to this file: trees, choices, times (docs/traces.md)")
      ->type_name("FILE");
  add_force_flag(app, options.existing);
  app.add_option("--dump-dir", options.dump_folder,
                 "where to leave a dump of an answer that fails, for espalier replay; without it here")
      ->type_name("DIR");
}

void add_prompt_flags(CLI::App& app, PromptFlags& flags) {
  app.add_option("PROMPT", flags.prompt, "the prompt; - reads standard input");
  app.add_option("--file", flags.file, "read the prompt from a file")->type_name("FILE");
  app.add_flag("--raw", flags.raw, "the prompt as it is, without the model's chat template");
  add_chat_flags(app, flags.chat);
  add_opening_flags(app, flags.chat);
}

EngineOptions engine_options(const EngineFlags& flags) {
  EngineOptions options = flags.options;
  ask_by_flags(flags.modes, options.modes);
  ask_by_environment(process_environment, options.modes);
  options.places = process_places();
  options.ascend = ascend_library(process_environment);
  return options;
}

std::string read_prompt(const std::optional<std::string>& prompt, const std::string& file) {
  if (prompt && !file.empty()) throw InputError("PROMPT and --file: expected only one of them");
  if (!file.empty()) return read_text_stream(file);
  if (!prompt) throw InputError("PROMPT is missing: give a text, - for standard input, or --file FILE");
  return *prompt == "-" ? read_standard_input() : *prompt;
}

ChatSettings opening(const PromptFlags& flags, const OpenEngine& engine) {
  return flags.raw ? flags.chat : with_chosen_system(flags.chat, engine);
}

std::string prompt_text(const PromptFlags& flags) {
  check_chat_settings(flags.chat);
  const ChatSettings& chat = flags.chat;
  const bool templated =
      !chat.system.empty() || chat.template_system || !chat.chat_template.empty() || !chat.variables.empty();
  if (flags.raw && templated)
    throw InputError(
        "--system, --system-default, --chat-template, --template-variables: not with --raw, which uses no chat "
        "template");
  std::string text = read_prompt(flags.prompt, flags.file);
  if (text.empty()) throw InputError("the prompt is empty");
  return text;
}

}  // namespace espalier
