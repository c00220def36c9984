#include "engine/model_advice.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/json_field.h"
#include "engine/model_hash.h"
#include "format/gguf.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

// A model of which more is known than its file says.
struct KnownModel {
  std::int64_t bytes;
  std::string_view sha256;
  std::string_view chat_template;  // its own, without the system message that it adds by itself
  SamplingWish sampling;
  std::string_view sampling_source;
};

const KnownModel kKnownModels[] = {
    // SmolLM2-135M-Instruct as scripts/fetch_model.py fetches it.
    {.bytes = 98'362'432,
     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
     .chat_template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
                      "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                      "{% endif %}",
     .sampling = {.temperature = 0.2f, .top_p = 0.9f},
     .sampling_source = "the model card"}};

// Only a file of the right size is hashed.
const KnownModel* find_known(const fs::path& model, const std::optional<fs::path>& cache) {
  const auto bytes = model_bytes(model);
  for (const KnownModel& known : kKnownModels)
    if (bytes == known.bytes && model_sha256(model, cache) == known.sha256) return &known;
  return nullptr;
}

// Checked like the flags of the same meaning; the message names the file instead of a flag.
void check_wish(const SamplingWish& wish, const std::string& where) {
  SamplingOptions options;
  take_recommended(wish, {}, options);
  try {
    check_options(options);
  } catch (const InputError& error) {
    input_error("{}: {}", where, error.what());
  }
}

template <typename Number>
std::optional<Number> narrowed(std::optional<double> value) {
  if (!value) return std::nullopt;
  return static_cast<Number>(*value);
}

// -1 is how some write "all".
std::optional<std::int64_t> top_k_of(std::optional<std::int64_t> value) {
  return value ? std::optional(std::max<std::int64_t>(0, *value)) : std::nullopt;
}

std::optional<double> number_in(const JsonField& config, const char* key) {
  const auto field = config.find(key);
  return field ? std::optional(field->number()) : std::nullopt;
}

// What Hugging Face's generate() does with it: greedy without do_sample, temperature 1 where none is written.
SamplingWish read_generation_config(const fs::path& file) {
  const nlohmann::json json = read_json_file(file);
  const JsonField config(json, file.string());
  if (!config.boolean_or("do_sample", false)) return {};
  const auto top_k = config.find("top_k");
  return {.temperature = narrowed<float>(number_in(config, "temperature").value_or(1)),
          .top_k = top_k_of(top_k ? std::optional(top_k->integer()) : std::nullopt),
          .top_p = narrowed<float>(number_in(config, "top_p")),
          .min_p = narrowed<float>(number_in(config, "min_p")),
          .repeat_penalty = narrowed<float>(number_in(config, "repetition_penalty"))};
}

// The keys that llama.cpp's converter writes.
SamplingWish read_gguf_keys(const fs::path& file) {
  const Gguf gguf(file);
  return {.temperature = narrowed<float>(gguf.number("general.sampling.temp")),
          .top_k = top_k_of(gguf.integer("general.sampling.top_k")),
          .top_p = narrowed<float>(gguf.number("general.sampling.top_p")),
          .min_p = narrowed<float>(gguf.number("general.sampling.min_p")),
          .repeat_penalty = narrowed<float>(gguf.number("general.sampling.penalty_repeat"))};
}

SamplingAdvice advice_of_files(const fs::path& model) {
  SamplingAdvice advice;
  if (!fs::is_directory(model))
    advice = {read_gguf_keys(model), "general.sampling.*"};
  else if (const fs::path file = model / "generation_config.json"; fs::exists(file))
    advice = {read_generation_config(file), "generation_config.json"};
  return advice.sampling == SamplingWish() ? SamplingAdvice() : advice;
}

template <typename Value>
void take(const std::optional<Value>& recommended, const std::optional<Value>& given, Value& option) {
  if (recommended && !given) option = *recommended;
}

}  // namespace

SamplingAdvice recommended_sampling(const fs::path& model, const std::optional<fs::path>& cache) {
  SamplingAdvice advice = advice_of_files(model);
  if (const KnownModel* known = advice.source.empty() ? find_known(model, cache) : nullptr)
    advice = {known->sampling, std::string(known->sampling_source)};
  check_wish(advice.sampling, fmt::format("{}: {}", model.string(), advice.source));
  return advice;
}

void take_recommended(const SamplingWish& recommended, const SamplingWish& given, SamplingOptions& sampling) {
  take(recommended.temperature, given.temperature, sampling.temperature);
  take(recommended.top_k, given.top_k, sampling.top_k);
  take(recommended.top_p, given.top_p, sampling.top_p);
  take(recommended.min_p, given.min_p, sampling.min_p);
  take(recommended.repeat_penalty, given.repeat_penalty, sampling.repeat_penalty);
}

ChatSettings with_chosen_system(ChatSettings settings, const OpenEngine& engine) {
  if (!settings.system.empty() || !settings.chat_template.empty() || settings.template_system) return settings;
  const KnownModel* known = find_known(engine.path, engine.places.cache);
  if (known == nullptr) return settings;
  settings.chat_template = known->chat_template;
  engine.listener->detail(
      "no system message: chosen for this model (docs/first-answers.md); --system-default is its "
      "template's own");
  return settings;
}

std::uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace espalier
