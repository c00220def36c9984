#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <thread>

#include "base/error.h"
#include "decode/decoder_choices.h"
#include "device/checked/checked_device.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/reference/reference_device.h"

namespace espalier {
namespace {

constexpr const char* kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

struct WeightWord {
  WeightMode mode;
  std::string_view word;
};
constexpr std::array<WeightWord, 3> kWeightWords = {
    {{WeightMode::stored, "file"}, {WeightMode::f32, "f32"}, {WeightMode::q8_0, "q8_0"}}};

// For whoever gives none.
Listener* silent_listener() {
  static Listener silent;
  return &silent;
}

// name: "cuda", or with a number "cuda:1"
std::unique_ptr<Device> make_gpu_device(const std::string& name) {
  const auto colon = name.find(':');
  return cuda::make_device({.index = colon == name.npos ? 0 : std::stoi(name.substr(colon + 1))});
}

std::unique_ptr<Device> make_plain_device(const ModeOptions& modes, const EngineOptions& options) {
  const int threads = thread_count(options.threads);
  if (modes.device == "cpu") return make_cpu_device({.threads = threads, .isa = parse_isa(options.isa)});
  if (!options.isa.empty())
    input_error("--isa: only with --device cpu, the {} device has no instruction sets to choose from", modes.device);
  if (modes.device.starts_with("cuda")) return make_gpu_device(modes.device);
  return make_reference_device(threads);
}

std::unique_ptr<Device> make_device(const ModeOptions& modes, const EngineOptions& options) {
  std::unique_ptr<Device> device = make_plain_device(modes, options);
  if (modes.checked == "off") return device;
  return make_checked_device(std::move(device),
                             {.profile = modes.checked == "ascend" ? CheckedProfile::ascend : CheckedProfile::plain});
}

void tell_engine(const OpenEngine& engine) {
  const ModelConfig& config = engine.model->config();
  const ModeOptions& modes = engine.modes;
  engine.listener->detail(fmt::format("model {}, {} layers, vocabulary {}, context {} of {}, device {} ({}), KV {}",
                                      engine.path.string(), config.layers, config.vocabulary, engine.decoder.context,
                                      config.context, engine.device->name(), engine.device->isa(),
                                      name(engine.decoder.kv_type)));
  engine.listener->detail(fmt::format("mode {}: attention {}, cache {}, reorder {}, mask {}, checked {}, invariants {}",
                                      modes.mode, modes.attention, modes.cache, modes.reorder, modes.mask,
                                      modes.checked, modes.invariants));
}

void load_weights(OpenEngine& engine) {
  const auto show = [&](double share) { engine.listener->progress("loading", share); };
  engine.model = load_transformer(*engine.device, engine.path, {.weights = engine.weights, .progress = show});
  const ModelConfig& config = engine.model->config();
  if (engine.text->tokenizer->vocabulary_size() > config.vocabulary)
    input_error("{}: the tokenizer has {} tokens, the model {}", engine.path.string(),
                engine.text->tokenizer->vocabulary_size(), config.vocabulary);
}

}  // namespace

OpenEngine open_engine(const EngineOptions& options, Listener* listener) {
  OpenEngine engine;
  engine.listener = listener == nullptr ? silent_listener() : listener;
  engine.modes = resolve_modes(options.modes);
  const DType kv_type = options.kv_type.value_or(DType::f16);
  if (!is_float(kv_type)) input_error("--kv: expected f16, bf16 or f32, got {}", name(kv_type));
  engine.weights = options.weights.value_or(WeightMode::stored);
  engine.threads = thread_count(options.threads);
  engine.places = options.places;
  engine.path = find_model(options.model, options.places);
  // First of all: a file that is no model is best told by what it lacks as a model.
  const ModelConfig config = load_config(engine.path);
  const std::int64_t wanted = options.context.value_or(0);
  const std::int64_t context = choose_context(config, wanted == 0 ? std::min(config.context, kDefaultContext) : wanted);
  engine.device = make_device(engine.modes, options);
  if (options.timed_ops) {
    auto timed = std::make_unique<TimedDevice>(std::move(engine.device));
    engine.timed = timed.get();
    engine.device = std::move(timed);
  }
  engine.text = load_model_text(engine.path);
  load_weights(engine);
  engine.decoder = {.context = context, .kv_type = kv_type};
  apply_modes(engine.modes, engine.decoder);
  tell_engine(engine);
  return engine;
}

std::filesystem::path find_model(const std::string& given, const Places& places) {
  if (!given.empty()) {
    std::error_code error;
    if (!std::filesystem::exists(given, error))
      input_error("{}: {}", given, error ? error.message() : "no such file or folder");
    return given;
  }
  if (const auto found = places.find(kDefaultModel)) return *found;
  input_error("the default model {} is not there: run `make model`, or give --model PATH", kDefaultModel);
}

int thread_count(int wanted) {
  return wanted == 0 ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency())) : wanted;
}

std::string_view name(WeightMode mode) {
  return std::ranges::find(kWeightWords, mode, &WeightWord::mode)->word;
}

std::optional<WeightMode> parse_weight_mode(std::string_view text) {
  const auto found = std::ranges::find(kWeightWords, text, &WeightWord::word);
  return found == kWeightWords.end() ? std::nullopt : std::optional(found->mode);
}

}  // namespace espalier
