#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "engine/conversion_text.h"
#include "engine/engine.h"
#include "engine/model_conversion.h"
#include "format/gguf.h"
#include "format/gguf_writer.h"

namespace espalier {
namespace {

struct QuantizeFlags {
  std::string in;
  std::string out;
  std::string type;
  int threads = 0;  // 0: one per core
  Existing existing = Existing::refuse;
  bool verbose = false;
};

// Writes all tensors; false when Ctrl-C came.
bool write_tensors(const Gguf& source, const std::vector<TensorConversion>& conversions, int threads,
                   GgufWriter& writer) {
  const InterruptGuard interrupt;
  ProgressBar bar("quantising");
  ThreadPool pool(thread_count(threads));
  const ConversionEvents events{.cancelled = [&] { return interrupt.interrupted(); },
                                .progress = [&](double share) { bar.show(share); }};
  return write_converted(source, conversions, pool, events, writer);
}

void check_target(const QuantizeFlags& flags, const Gguf& source) {
  if (std::filesystem::is_regular_file(flags.out) &&
      is_part_of(flags.out, flags.in, source.integer("split.count").value_or(0)))
    input_error("{}: IN and OUT are the same file, expected another name", flags.out);
  check_output(flags.out, flags.existing);
}

void print_summary(const std::vector<TensorConversion>& conversions, const QuantizeFlags& flags, std::uint64_t bytes) {
  std::string text = flags.verbose ? conversion_lines(conversions) : "";
  text += conversion_table(conversions);
  text += fmt::format("{}: {:.2f} MB\n", flags.out, static_cast<double>(bytes) / 1e6);
  if (flags.out == "-") return tell(text);  // the file is there
  print(text);
  flush_output();
}

int run_quantize(const QuantizeFlags& flags) {
  if (std::filesystem::is_directory(flags.in))
    input_error("{}: expected a GGUF file, got a folder: convert_hf_to_gguf.py of llama.cpp makes one of it", flags.in);
  const Gguf source(flags.in);
  check_target(flags, source);
  const DType wanted = *parse_dtype(flags.type);
  const std::vector<TensorConversion> conversions = plan_conversions(source, wanted);
  GgufWriter writer(flags.out, plan_converted_file(flags.in, source, conversions, wanted), flags.existing);
  if (!write_tensors(source, conversions, flags.threads, writer)) {
    tell("espalier: interrupted, nothing was written\n");
    return kInterrupted;
  }
  print_summary(conversions, flags, writer.bytes_written());
  return 0;
}

}  // namespace

Command add_quantize(CLI::App& app) {
  CLI::App* command = app.add_subcommand("quantize", "write a GGUF model with its matrices in another type");
  auto flags = std::make_shared<QuantizeFlags>();
  command->add_option("IN", flags->in, "a GGUF file, or the first of a split set")->required();
  command->add_option("OUT", flags->out, "the GGUF file to write; - is standard output")->required();
  command->add_option("--type", flags->type, "the type of the matrices: f16, q8_0, q4_0 or q4_1")
      ->required()
      ->check(CLI::IsMember({"f16", "q8_0", "q4_0", "q4_1"}))
      ->type_name("TYPE");
  add_threads_flag(*command, flags->threads);
  add_force_flag(*command, flags->existing);
  command->add_flag("-v,--verbose", flags->verbose, "list every tensor");
  return [flags] { return run_quantize(*flags); };
}

}  // namespace espalier
