// The flags that subcommands share, as plain structs that the flags fill.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/modes.h"
#include "decode/decoder.h"
#include "device/device.h"
#include "device/timed_device.h"
#include "model/transformer.h"
#include "session/session.h"
#include "text/model_text.h"

namespace espalier {

struct EngineOptions {
  std::string model;  // empty: the default model
  ModeFlags modes;
  int threads = 0;       // 0: one per core
  std::string isa = {};  // of the CPU device's kernels; empty: the fastest
  std::string kv = "f16";
  std::string weights = "file";  // or f32, q8_0
  std::int64_t context = 0;      // 0: what the model was made for, at most kDefaultContext
  bool verbose = false;
  bool timed_ops = false;  // no flag: the device can tell what its ops take
};

struct SamplingFlags {
  SamplingOptions sampling;
  std::vector<std::string> logit_bias;  // ID=VALUE
  std::uint64_t seed = 0;
  std::int64_t max_tokens = 256;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::int64_t logprobs = -1;
};

struct ChatFlags {
  std::string system;
  std::string variables;  // a JSON object
  std::string date;       // empty: today
};

// A headline of --help: options that are added while it lives stand below it.
class HelpGroup {
 public:
  HelpGroup(CLI::App& app, const std::string& title) : app_(app) { app_.option_defaults()->group(title); }
  ~HelpGroup() { app_.option_defaults()->group("Options"); }
  HelpGroup(const HelpGroup&) = delete;
  HelpGroup& operator=(const HelpGroup&) = delete;

 private:
  CLI::App& app_;
};

void add_chat_flags(CLI::App& app, ChatFlags& flags);
// What the template may ask for, today's date included.
ChatContext chat_context(const ChatFlags& flags);

void add_model_flag(CLI::App& app, EngineOptions& options);
void add_engine_flags(CLI::App& app, EngineOptions& options);
void add_sampling_flags(CLI::App& app, SamplingFlags& flags);
// Checks the flags against each other; throws InputError.
TextOptions text_options(const SamplingFlags& flags);

// file, f32 or q8_0.
WeightMode parse_weight_mode(const std::string& text);

// The model that is meant: the one given, else the default one. Throws InputError saying what to do when it is absent.
std::filesystem::path find_model(const std::string& given);

// A file of the repository: beside the working directory, or where this program was built (build/bin/espalier).
std::optional<std::filesystem::path> find_in_repository(const std::string& relative);

// A loaded model with everything that belongs to it. Members are declared in the order they depend on each other.
struct Engine {
  std::filesystem::path path;
  ModeOptions modes;
  std::unique_ptr<Device> device;
  TimedDevice* timed = nullptr;  // the same device, where the options asked for it
  std::optional<ModelText> text;
  std::optional<Transformer> model;
  DecoderOptions decoder;  // for whoever makes decoders on this model
  WeightMode weights = WeightMode::stored;
  int threads = 1;
  std::optional<std::filesystem::path> cache_folder = {};  // where runs keep what later ones may use; nothing: nowhere
  std::vector<std::filesystem::path> head_folders = {};    // where draft heads may lie
  bool verbose = false;
};
Engine open_engine(const EngineOptions& options);

// PROMPT, "-" for standard input, or --file. Throws InputError unless exactly one is given.
std::string read_prompt(const std::optional<std::string>& prompt, const std::string& file);

// Writes to standard output; throws DeviceError when that fails (a full disk, a closed pipe).
void print(std::string_view text);
void flush_output();

}  // namespace espalier
