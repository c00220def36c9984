#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include "base/error.h"
#include "decode/decoder_choices.h"
#include "device/ascend/ascend_device.h"
#include "device/checked/checked_device.h"
#include "device/cuda/cuda_device.h"
#include "device/named_device.h"
#include "engine/device_choice.h"
#include "engine/head_search.h"
#include "engine/model_hash.h"
#include "format/gguf.h"
#include "format/safetensors.h"

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

// As the files have them. What is wrong with one is told when it is opened.
std::int64_t bytes_beside(const OpenEngine& engine, const EngineOptions& options) {
  std::int64_t given = 0, trained = 0;
  for (const std::filesystem::path& path : options.beside) given += model_bytes(path).value_or(0);
  if (options.trained_heads)
    for (const HeadCard& head : heads_trained_for(engine.path, engine.places.heads, engine.places.cache))
      trained = std::max(trained, model_bytes(head.path).value_or(0));
  return given + trained;
}

MemoryNeeds needs_of(const OpenEngine& engine, const ModelConfig& config, const EngineOptions& options,
                     const ModelUse& use) {
  const std::unique_ptr<TensorSource> source = open_tensors(engine.path);
  ModelUse whole = use;
  whole.beside = bytes_beside(engine, options);
  return memory_needs(config, source->tensors(), whole);
}

// What "auto" comes to, and whether a GPU has room. On a machine without one nobody is asked anything.
void settle_device(OpenEngine& engine, const EngineOptions& options, const std::function<MemoryNeeds()>& needs) {
  std::string& device = engine.modes.device;
  if (device == "auto" && !options.isa.empty()) device = "cpu";
  const bool named = device.starts_with("cuda");
  if (device != "auto" && !named) return;
  const cuda::Devices gpus = cuda::list_devices();
  if (named) return check_room(device, gpus.present ? needs() : MemoryNeeds{}, gpus);
  const DeviceChoice choice = gpus.present ? choose_device(needs(), gpus) : DeviceChoice{};
  device = choice.device;
  if (!choice.remark.empty()) engine.listener->remark(choice.remark);
}

std::unique_ptr<Device> make_plain_device(const ModeOptions& modes, const EngineOptions& options, Listener& listener) {
  if (modes.device != "cpu" && !options.isa.empty())
    input_error("--isa: only with --device cpu, the {} device has no instruction sets to choose from", modes.device);
  return make_named_device(modes.device, {.threads = thread_count(options.threads),
                                          .isa = parse_isa(options.isa),
                                          .activations = options.activations,
                                          .ascend = options.ascend,
                                          .remark = [&listener](std::string_view line) { listener.remark(line); }});
}

std::unique_ptr<Device> make_device(const ModeOptions& modes, const EngineOptions& options, Listener& listener) {
  std::unique_ptr<Device> device = make_plain_device(modes, options, listener);
  if (modes.checked == "off") return device;
  return make_checked_device(std::move(device),
                             {.profile = modes.checked == "ascend" ? CheckedProfile::ascend : CheckedProfile::plain});
}

void tell_engine(const OpenEngine& engine) {
  if (!engine.device->row_independent())
    engine.listener->remark(
        fmt::format("the device {} is not row independent: a text may depend on what is computed beside it, and with "
                    "speculation differ where two tokens are nearly equal",
                    engine.device->name()));
  const ModelConfig& config = engine.model->config();
  const ModeOptions& modes = engine.modes;
  engine.listener->detail(fmt::format("model {}, {} layers, vocabulary {}, context {} of {}, device {} ({}), KV {}",
                                      engine.path.string(), config.layers, config.vocabulary, engine.decoder.context,
                                      config.context, engine.device->name(), engine.device->isa(),
                                      name(engine.decoder.kv_type)));
  engine.listener->detail(
      fmt::format("mode {}: attention {}, cache {}, reorder {}, mask {}, round route {}, checked {}, "
                  "invariants {}",
                  modes.mode, modes.attention, modes.cache, modes.reorder, modes.mask, modes.round_route, modes.checked,
                  modes.invariants));
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
  const bool chosen = engine.modes.device == "auto";
  settle_device(engine, options, [&] {
    const std::int64_t positions = options.pool_positions > 0 ? std::min(context, options.pool_positions) : context;
    return needs_of(engine, config, options, {.weights = engine.weights, .kv_type = kv_type, .positions = positions});
  });
  engine.device = make_device(engine.modes, options, *engine.listener);
  if (options.timed_ops) {
    auto timed = std::make_unique<TimedDevice>(std::move(engine.device));
    engine.timed = timed.get();
    engine.device = std::move(timed);
  }
  engine.text = load_model_text(engine.path);
  load_weights(engine);
  if (chosen)
    if (const std::string remark =
            text_remark(*engine.device, engine.modes.device, engine.model->weights().float_linears);
        !remark.empty())
      engine.listener->remark(remark);
  engine.decoder = {.context = context, .kv_type = kv_type};
  if (engine.device->free_memory()) engine.decoder.prefill_rows = kPrefillRowsOnGpu;
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

std::unique_ptr<TensorSource> open_tensors(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return std::make_unique<Safetensors>(path);
  return std::make_unique<Gguf>(path);
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
