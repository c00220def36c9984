// What an application opens: a model with its device, its text, and where its drafters' heads lie. Plain options in,
// remarks and progress to a listener; nothing here prints, exits or reads the environment. An engine does not change
// while it is used, so any number of decoders can be made on it; each of those belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/decoder_options.h"
#include "device/activations.h"
#include "device/ascend/library.h"
#include "device/device.h"
#include "device/timed_device.h"
#include "engine/listener.h"
#include "engine/modes.h"
#include "engine/places.h"
#include "format/tensor_info.h"
#include "model/transformer.h"
#include "text/model_text.h"

namespace espalier {

// KV memory is taken at the start: not more than most people need.
inline constexpr std::int64_t kDefaultContext = 8192;

struct EngineOptions {
  std::string model = {};  // a GGUF file or a Hugging Face folder; empty: the default model
  ModeRequest modes = {};
  int threads = 0;                              // 0: one per core
  std::string isa = {};                         // of the CPU device's kernels; empty: the fastest
  std::optional<DType> kv_type = {};            // nothing: f16
  std::optional<WeightMode> weights = {};       // nothing: as in the file
  std::optional<Activations> activations = {};  // nothing: the device's own; not every device has a choice
  std::optional<std::int64_t> context =
      {};  // positions; 0, nothing: what the model was made for, at most kDefaultContext
  // Positions that the KV pool has at least, for whoever sizes it by what is free; 0: a whole context. Only looked at
  // where a device has memory of its own, to tell whether the model fits.
  std::int64_t pool_positions = 0;
  // Heads and draft models that will be loaded too (with_drafting() in drafting.h), for the same purpose.
  std::vector<std::filesystem::path> beside = {};
  bool trained_heads = false;          // one of those that were trained for the model and lie in its folders
  bool timed_ops = false;              // the device can tell what its ops take
  ascend::LibraryOptions ascend = {};  // where the Ascend device finds CANN
  Places places = {};
};

// Members are declared in the order they depend on each other.
struct OpenEngine {
  std::filesystem::path path;
  ModeOptions modes;
  std::unique_ptr<Device> device;
  TimedDevice* timed = nullptr;  // the same device, where the options asked for it
  std::optional<ModelText> text;
  std::optional<Transformer> model;
  DecoderOptions decoder;  // for whoever makes decoders on this model
  WeightMode weights = WeightMode::stored;
  int threads = 1;
  Places places = {};
  Listener* listener = nullptr;  // never null once opened
};

// The listener, where there is one, must outlive the engine. Throws InputError.
OpenEngine open_engine(const EngineOptions& options, Listener* listener = nullptr);

// The model that is meant: the one given, else the default one. Throws InputError saying what to do when it is absent.
std::filesystem::path find_model(const std::string& given, const Places& places);

// The tensors of a model: of a GGUF file, or of a Hugging Face folder's safetensors. Throws InputError.
std::unique_ptr<TensorSource> open_tensors(const std::filesystem::path& path);

// The number of threads that is meant: 0 is one per core.
int thread_count(int wanted);

std::string_view name(WeightMode mode);  // "file", "f32", "q8_0"
// Nothing: none of these.
std::optional<WeightMode> parse_weight_mode(std::string_view text);

}  // namespace espalier
