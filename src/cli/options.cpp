#include "cli/options.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <iterator>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/cache_file.h"
#include "cli/head_search.h"
#include "cli/progress.h"
#include "device/checked/checked_device.h"
#include "device/cpu/cpu_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr const char* kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr std::int64_t kDefaultContext = 8192;  // KV memory is taken at the start: not more than most people need

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

int chosen_threads(const EngineOptions& options) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return options.threads == 0 ? cores : options.threads;
}

std::unique_ptr<Device> make_plain_device(const ModeOptions& modes, const EngineOptions& options) {
  const int threads = chosen_threads(options);
  if (modes.device == "cpu") return make_cpu_device({.threads = threads, .isa = parse_isa(options.isa)});
  if (!options.isa.empty()) throw InputError("--isa: only with --device cpu, the reference device has no kernels");
  return make_reference_device(threads);
}

std::unique_ptr<Device> make_device(const ModeOptions& modes, const EngineOptions& options) {
  std::unique_ptr<Device> device = make_plain_device(modes, options);
  if (modes.checked == "off") return device;
  return make_checked_device(std::move(device),
                             {.profile = modes.checked == "ascend" ? CheckedProfile::ascend : CheckedProfile::plain});
}

void report_engine(const Engine& engine) {
  const ModelConfig& config = engine.model->config();
  const ModeOptions& modes = engine.modes;
  fmt::print(stderr, "model {}, {} layers, vocabulary {}, context {} of {}, device {} ({}), KV {}\n",
             engine.path.string(), config.layers, config.vocabulary, engine.decoder.context, config.context,
             engine.device->name(), engine.device->isa(), name(engine.decoder.kv_type));
  fmt::print(stderr, "mode {}: attention {}, cache {}, reorder {}, mask {}, checked {}, invariants {}\n", modes.mode,
             modes.attention, modes.cache, modes.reorder, modes.mask, modes.checked, modes.invariants);
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (Isa isa : supported_isas()) names.emplace_back(name(isa));
  return names;
}

// Empty where the system does not tell.
std::filesystem::path program_file() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored);
}

std::string read_standard_input() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (std::cin.bad()) input_error("standard input: cannot read");
  return text;
}

}  // namespace

void add_model_flag(CLI::App& app, EngineOptions& options) {
  app.add_option("-m,--model", options.model, "GGUF file or Hugging Face folder; without it the default model")
      ->type_name("PATH");
}

void add_engine_flags(CLI::App& app, EngineOptions& options) {
  const HelpGroup group(app, "Engine");
  add_model_flag(app, options);
  add_mode_flags(app, options.modes);
  app.add_option("-t,--threads", options.threads, "threads; 0: one per core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--isa", options.isa, "the instruction set of the kernels; without it the fastest (see inspect --cpu)")
      ->check(CLI::IsMember(isa_names()))
      ->type_name("NAME");
  app.add_option("--kv", options.kv, "element type of the KV cache: f16, bf16 or f32")
      ->check(CLI::IsMember({"f16", "bf16", "f32"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("--weights", options.weights, "weights as in the file, widened to f32, or quantised to q8_0")
      ->check(CLI::IsMember({"file", "f32", "q8_0"}))
      ->capture_default_str()
      ->type_name("TYPE");
  app.add_option("-c,--context", options.context,
                 "positions of the context; 0: what the model was made for, at most " + std::to_string(kDefaultContext))
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->type_name("N");
  app.add_flag("-v,--verbose", options.verbose, "say more on standard error");
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const HelpGroup group(app, "Sampling");
  SamplingOptions& sampling = flags.sampling;
  app.add_option("-n,--max-tokens", flags.max_tokens, "the most tokens of an answer")->capture_default_str();
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
  app.add_option("--logit-bias", flags.logit_bias, "add VALUE to the logit of token ID; may be repeated")
      ->type_name("ID=VALUE")
      ->allow_extra_args(false);
  app.add_option("--seed", flags.seed, "the same seed gives the same text")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--stop", flags.stop, "end the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on after the model's end-of-answer token");
  app.add_option("--logprobs", flags.logprobs, "report the N most probable tokens of each position (with --json)")
      ->check(CLI::Range(0, 1000))
      ->type_name("N");
}

void add_chat_flags(CLI::App& app, ChatFlags& flags) {
  app.add_option("--system", flags.system, "the system message of the chat")->type_name("TEXT");
  app.add_option("--template-variables", flags.variables,
                 "variables of the chat template, for example {\"enable_thinking\": false}")
      ->type_name("JSON");
  app.add_option("--date", flags.date, "the day that templates which tell the date are given; without it today")
      ->type_name("YYYY-MM-DD");
}

ChatContext chat_context(const ChatFlags& flags) {
  if (!flags.date.empty()) return {.date_iso = flags.date, .variables_json = flags.variables};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char date[sizeof "2026-11-15T23:59:59"];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &local);
  return {.date_iso = date, .variables_json = flags.variables};
}

TextOptions text_options(const SamplingFlags& flags) {
  TextOptions options;
  options.generate.sampling = flags.sampling;
  for (const std::string& bias : flags.logit_bias)
    options.generate.sampling.logit_bias.insert_or_assign(parse_bias(bias).first, parse_bias(bias).second);
  check_options(options.generate.sampling);
  options.generate.seed = flags.seed;
  if (flags.max_tokens < 0) input_error("--max-tokens: expected 0 or more, got {}", flags.max_tokens);
  options.generate.max_tokens = flags.max_tokens;
  options.generate.logprobs = flags.logprobs;
  for (const std::string& stop : flags.stop)
    if (stop.empty()) throw InputError("--stop: expected some text, got an empty one");
  options.stop = flags.stop;
  options.ignore_eos = flags.ignore_eos;
  return options;
}

WeightMode parse_weight_mode(const std::string& text) {
  if (text == "f32") return WeightMode::f32;
  return text == "q8_0" ? WeightMode::q8_0 : WeightMode::stored;
}

std::filesystem::path find_model(const std::string& given) {
  if (!given.empty()) {
    if (!std::filesystem::exists(given)) input_error("{}: no such file or folder", given);
    return given;
  }
  if (const auto found = find_in_repository(kDefaultModel)) return *found;
  input_error("the default model {} is not there: run `make model`, or give --model PATH", kDefaultModel);
}

std::optional<std::filesystem::path> find_in_repository(const std::string& relative) {
  std::error_code ignored;
  for (const auto& folder : {std::filesystem::path("."), program_file().parent_path() / ".." / ".."})
    if (std::filesystem::exists(folder / relative, ignored)) return (folder / relative).lexically_normal();
  return std::nullopt;
}

Engine open_engine(const EngineOptions& options) {
  Engine engine;
  engine.modes = resolve_modes(options.modes, process_environment);
  engine.verbose = options.verbose;
  engine.weights = parse_weight_mode(options.weights);
  engine.threads = chosen_threads(options);
  engine.cache_folder = user_cache_folder(process_environment);
  engine.head_folders = head_folders(process_environment, program_file());
  engine.path = find_model(options.model);
  load_config(engine.path);  // first of all: a file that is no model is best told by what it lacks as a model
  engine.device = make_device(engine.modes, options);
  if (options.timed_ops) {
    auto timed = std::make_unique<TimedDevice>(std::move(engine.device));
    engine.timed = timed.get();
    engine.device = std::move(timed);
  }
  engine.text = load_model_text(engine.path);
  {
    ProgressBar bar("loading");
    engine.model = load_transformer(*engine.device, engine.path,
                                    {.weights = engine.weights, .progress = [&](double share) { bar.show(share); }});
  }
  const ModelConfig& config = engine.model->config();
  if (engine.text->tokenizer->vocabulary_size() > config.vocabulary)
    input_error("{}: the tokenizer has {} tokens, the model {}", engine.path.string(),
                engine.text->tokenizer->vocabulary_size(), config.vocabulary);
  const std::int64_t context = options.context == 0 ? std::min(config.context, kDefaultContext) : options.context;
  engine.decoder = {.context = context, .kv_type = *parse_dtype(options.kv)};
  apply_modes(engine.modes, engine.decoder);
  if (options.verbose) report_engine(engine);
  return engine;
}

std::string read_prompt(const std::optional<std::string>& prompt, const std::string& file) {
  if (prompt && !file.empty()) throw InputError("PROMPT and --file: expected only one of them");
  if (!file.empty()) return read_text_file(file);
  if (!prompt) throw InputError("PROMPT is missing: give a text, - for standard input, or --file FILE");
  return *prompt == "-" ? read_standard_input() : *prompt;
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    device_error("standard output: cannot write: {}", std::strerror(errno));
}

void flush_output() {
  if (std::fflush(stdout) != 0) device_error("standard output: cannot write: {}", std::strerror(errno));
}

}  // namespace espalier
