#include "eval/perplexity.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "eval/perplexity_report.h"

namespace espalier {
namespace {

constexpr std::int64_t kScoredRows = 64;  // larger steps are hardly faster, and their logits take more memory

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  WindowOptions windows = {.window = 0};  // 0: to be chosen
  std::string logprobs;                   // empty: they are not written
  Existing existing = Existing::refuse;
  bool json = false;
};

int run_perplexity(const PerplexityFlags& flags) {
  const std::string input = read_text_file(flags.file);
  if (!flags.logprobs.empty()) check_output(flags.logprobs, flags.existing);
  EngineOptions options = engine_options(flags.engine);
  const std::int64_t asked = options.context.value_or(0);
  const WindowOptions windows =
      chosen_windows(flags.windows, asked > 0 ? asked : load_config(find_model(options.model, options.places)).context);
  options.context = windows.window;
  Screen screen(flags.engine.verbose);
  OpenEngine engine = open_engine(options, &screen);
  engine.decoder.scored_rows = kScoredRows;
  const std::vector<TextWindow> text = text_windows(input, flags.file, *engine.text->tokenizer, windows);
  Batch decoder(*engine.model, engine.decoder);
  std::optional<LogprobFile> logprobs;
  if (!flags.logprobs.empty()) logprobs.emplace(flags.logprobs, flags.existing);
  const RunningMean surprise = measure_surprise(text, decoder, screen, [&](const CountedToken& token) {
    if (logprobs) logprobs->add(token);
  });
  if (logprobs) logprobs->finish();
  const std::string summary =
      flags.json ? perplexity_json(surprise, windows, engine).dump(2) + "\n" : perplexity_text(surprise, windows);
  if (flags.logprobs == "-") {
    tell(summary);
    return 0;
  }
  print(summary);
  flush_output();
  return 0;
}

}  // namespace

Command add_perplexity(CLI::App& app) {
  CLI::App* command = app.add_subcommand("perplexity", "how well the model predicts a text");
  auto flags = std::make_shared<PerplexityFlags>();
  command->add_option("FILE", flags->file, "a text file")->required();
  command
      ->add_option("--window", flags->windows.window,
                   "tokens that see each other; without it 512, or the context if that is less")
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N");
  command->add_flag("--second-half", flags->windows.second_half,
                    "count as llama.cpp does: the second half of each whole window");
  command
      ->add_option("--logprobs", flags->logprobs,
                   "write the log-probability of every counted token to this file; - is standard output")
      ->type_name("FILE");
  add_force_flag(*command, flags->existing);
  command->add_flag("--json", flags->json, "print one JSON object");
  add_engine_flags(*command, flags->engine);
  return [flags] { return run_perplexity(*flags); };
}

}  // namespace espalier
