#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "engine/answer_json.h"
#include "engine/device_list.h"
#include "engine/model_facts.h"
#include "format/tensor_info.h"

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

void print_object(const nlohmann::ordered_json& object, bool json) {
  print(json ? json_text(object) : facts_text(object));
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
    print_object({{"arithmetic", kArithmetic}, {"devices", describe_devices(ascend_library(process_environment))}},
                 flags.json);
    flush_output();
    return 0;
  }
  if (flags.file && !flags.engine.model.empty()) throw InputError("FILE and --model: expected only one of them");
  if (flags.file && flags.file->empty()) throw InputError("FILE: expected a file or a folder, got nothing");
  const std::filesystem::path path = find_model(flags.file.value_or(flags.engine.model), process_places());
  const std::unique_ptr<TensorSource> source = open_tensors(path);
  print_object(describe_model(path, *source), flags.json);
  if (flags.verbose && !flags.json) print(tensors_text(*source));
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
