#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/arithmetic.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "device/ascend/ascend_device.h"
#include "device/cpu/isa.h"
#include "device/cuda/cuda_device.h"
#include "format/gguf.h"
#include "format/safetensors.h"

namespace espalier {
namespace {

struct InspectFlags {
  EngineOptions engine;
  std::optional<std::string> file;
  bool cpu = false;
  bool devices = false;
  bool json = false;
  bool verbose = false;
};

std::int64_t element_count(const TensorInfo& info) {
  std::int64_t product = 1;
  for (std::int64_t extent : info.shape) product *= extent;
  return product;
}

nlohmann::ordered_json describe_tensors(const TensorSource& source) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_type;  // count, bytes
  std::int64_t elements = 0, bytes = 0, on_npu = 0;
  for (const TensorInfo& info : source.tensors()) {
    auto& [count, size] = by_type[std::string(name(info.type))];
    ++count;
    size += static_cast<std::int64_t>(info.bytes.size());
    elements += element_count(info);
    bytes += static_cast<std::int64_t>(info.bytes.size());
    on_npu += ascend::stored_bytes(info.type, element_count(info));
  }
  nlohmann::ordered_json types;
  for (const auto& [type, figures] : by_type) types[type] = {{"tensors", figures.first}, {"bytes", figures.second}};
  // An Ascend NPU has no block formats: they are dequantised when they are loaded.
  return {{"tensors", source.tensors().size()},
          {"elements", elements},
          {"bytes", bytes},
          {"bytes_on_ascend", on_npu},
          {"types", types}};
}

nlohmann::ordered_json describe_config(const ModelConfig& config) {
  return {{"family", config.family},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"intermediate", config.intermediate},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_size", config.head_size},
          {"vocabulary", config.vocabulary},
          {"context", config.context},
          {"rms_eps", config.rms_eps},
          {"qkv_bias", config.qkv_bias},
          {"output_bias", config.output_bias},
          {"qk_norm", config.qk_norm},
          {"tied_embeddings", config.tied},
          {"sliding_window", config.sliding_window},
          {"kv_bytes_per_token_f16", 4 * config.layers * config.kv_heads * config.head_size}};
}

nlohmann::ordered_json describe_text(const ModelText& text) {
  nlohmann::ordered_json stops = nlohmann::ordered_json::array();
  for (TokenId id : text.stop_tokens) stops.push_back({{"id", id}, {"text", text.tokenizer->bytes(id, false)}});
  return {{"tokens", text.tokenizer->vocabulary_size()},
          {"bos", text.bos_text},
          {"eos", text.eos_text},
          {"adds_bos", text.tokenizer->add_bos()},
          {"stop_tokens", stops},
          {"chat_template", text.chat_template.has_value()}};
}

void print_tensors(const TensorSource& source) {
  for (const TensorInfo& info : source.tensors()) {
    std::string shape;
    for (std::int64_t extent : info.shape) shape += fmt::format("{}{}", shape.empty() ? "" : " x ", extent);
    print(fmt::format("  {:<44} {:<5} {}\n", info.name, name(info.type), shape));
  }
}

// "key: value" lines, nested objects indented.
void print_readable(const nlohmann::ordered_json& object, int indent = 0) {
  for (const auto& [key, value] : object.items()) {
    const std::string margin(static_cast<std::size_t>(indent), ' ');
    if (value.is_object()) {
      print(fmt::format("{}{}:\n", margin, key));
      print_readable(value, indent + 2);
    } else {
      print(fmt::format("{}{}: {}\n", margin, key, value.is_string() ? value.get<std::string>() : value.dump()));
    }
  }
}

// Without a tokenizer a model can still be looked at; say what is wrong with it instead.
nlohmann::ordered_json describe_text_or_problem(const std::filesystem::path& path) {
  try {
    return describe_text(load_model_text(path));
  } catch (const InputError& error) {
    return {{"problem", error.what()}};
  }
}

// The processor, and what of it the kernels can use.
nlohmann::ordered_json describe_cpu() {
  auto supported = nlohmann::ordered_json::array();
  for (Isa isa : supported_isas()) supported.push_back(name(isa));
  return {{"isa", name(supported_isas().back())},
          {"supported", supported},
          {"cores", std::max(1u, std::thread::hardware_concurrency())}};
}

nlohmann::ordered_json describe_gpu(const cuda::DeviceInfo& gpu) {
  nlohmann::ordered_json object = {{"name", gpu.name},
                                   {"capability", gpu.capability},
                                   {"memory_bytes", gpu.memory},
                                   {"free_bytes", gpu.free_memory}};
  if (!gpu.problem.empty()) object["problem"] = gpu.problem;
  return object;
}

nlohmann::ordered_json describe_npu(const ascend::DeviceInfo& npu) {
  nlohmann::ordered_json object = {
      {"name", npu.name}, {"memory_bytes", npu.memory}, {"free_bytes", npu.free_memory}, {"row_independent", false}};
  if (!npu.problem.empty()) object["problem"] = npu.problem;
  return object;
}

void describe_npus(nlohmann::ordered_json& devices) {
  const ascend::Devices found = ascend::list_devices(ascend_library(process_environment));
  nlohmann::ordered_json npus = nlohmann::ordered_json::object();
  if (!found.runtime.empty()) npus["runtime"] = found.runtime;
  if (!found.problem.empty()) npus["problem"] = found.problem;
  devices["ascend"] = npus;
  for (const ascend::DeviceInfo& npu : found.npus) devices[fmt::format("ascend:{}", npu.index)] = describe_npu(npu);
}

// Every device that --device can name here; where one cannot be used, why.
nlohmann::ordered_json describe_devices() {
  const cuda::Devices found = cuda::list_devices(cuda::Look::at_each);
  nlohmann::ordered_json gpus = nlohmann::ordered_json::object();
  if (!found.driver.empty()) gpus["driver_supports_cuda"] = found.driver;
  if (!found.runtime.empty()) gpus["runtime"] = found.runtime;
  if (!found.problem.empty()) gpus["problem"] = found.problem;
  nlohmann::ordered_json devices = {{"cpu", describe_cpu()}, {"reference", {{"isa", "portable"}}}, {"cuda", gpus}};
  for (const cuda::DeviceInfo& gpu : found.gpus) devices[fmt::format("cuda:{}", gpu.index)] = describe_gpu(gpu);
  describe_npus(devices);
  return devices;
}

void print_object(const nlohmann::ordered_json& object, bool json) {
  if (json) {
    print(object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    print_readable(object);
  }
}

int run_inspect(const InspectFlags& flags) {
  if (flags.cpu) {
    if (flags.file || !flags.engine.model.empty()) throw InputError("--cpu: shows the processor, expected no model");
    print_object({{"arithmetic", kArithmetic}, {"cpu", describe_cpu()}}, flags.json);
    flush_output();
    return 0;
  }
  if (flags.devices) {
    if (flags.file || !flags.engine.model.empty()) throw InputError("--devices: shows the devices, expected no model");
    print_object({{"arithmetic", kArithmetic}, {"devices", describe_devices()}}, flags.json);
    flush_output();
    return 0;
  }
  if (flags.file && !flags.engine.model.empty()) throw InputError("FILE and --model: expected only one of them");
  if (flags.file && flags.file->empty()) throw InputError("FILE: expected a file or a folder, got nothing");
  const std::filesystem::path path = find_model(flags.file.value_or(flags.engine.model), process_places());
  const bool folder = std::filesystem::is_directory(path);
  const std::unique_ptr<TensorSource> source =
      folder ? std::unique_ptr<TensorSource>(std::make_unique<Safetensors>(path)) : std::make_unique<Gguf>(path);
  nlohmann::ordered_json object = {
      {"file", path.string()}, {"format", folder ? "safetensors" : "gguf"}, {"arithmetic", kArithmetic}};
  object["model"] = describe_config(load_config(path));
  object["weights"] = describe_tensors(*source);
  object["text"] = describe_text_or_problem(path);
  print_object(object, flags.json);
  if (flags.verbose && !flags.json) print_tensors(*source);
  flush_output();
  return 0;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "show what is in a model, or with --devices what can compute here");
  auto flags = std::make_shared<InspectFlags>();
  command->add_option("FILE", flags->file, "GGUF file or Hugging Face folder; without it the default model");
  add_model_flag(*command, flags->engine);
  command->add_flag("--cpu", flags->cpu, "show the processor and the instruction sets that can be used instead");
  command->add_flag("--devices", flags->devices,
                    "show the devices that --device can name instead, GPUs and NPUs with their memory and, where one "
                    "cannot be used, why");
  command->add_flag("--json", flags->json, "print one JSON object");
  command->add_flag("-v,--verbose", flags->verbose, "list every tensor");
  return [flags] { return run_inspect(*flags); };
}

}  // namespace espalier
