#include "eval/perplexity.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/math.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/screen.h"

namespace espalier {
namespace {

constexpr std::int64_t kDefaultWindow = 512;
constexpr std::int64_t kScoredRows = 64;        // larger steps are hardly faster, and their logits take more memory
constexpr std::size_t kWrittenBytes = 1 << 16;  // of log-probabilities, at a time

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  WindowOptions windows = {.window = 0};  // 0: kDefaultWindow, or the context where that is less
  std::string logprobs;                   // empty: they are not written
  Existing existing = Existing::refuse;
  bool json = false;
};

WindowOptions chosen_windows(const PerplexityFlags& flags, std::int64_t context) {
  WindowOptions windows = flags.windows;
  if (windows.window == 0) windows.window = std::min(kDefaultWindow, context);
  const std::int64_t least = shortest_window(windows);
  if (windows.window < least || windows.window > context)
    input_error("--window: expected {} to the context of {}, got {}", least, context, windows.window);
  return windows;
}

std::vector<TextWindow> read_windows(const std::string& input, const PerplexityFlags& flags,
                                     const WindowOptions& options, const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids = tokenizer.encode(input);
  const auto bos = tokenizer.add_bos() ? tokenizer.bos() : std::nullopt;
  const std::int64_t least = options.second_half ? options.window - (bos ? 1 : 0) : 2;
  if (std::ssize(ids) < least) input_error("{}: expected at least {} tokens, got {}", flags.file, least, ids.size());
  return cut_windows(ids, bos, options);
}

// One line a token: its place in the text, its id, its log-probability (docs/eval.md).
class LogprobFile {
 public:
  LogprobFile(const std::string& path, Existing existing) {
    if (!path.empty()) file_.emplace(path, existing);
  }

  void add(const CountedToken& token) {
    if (!file_) return;
    lines_ += fmt::format("{}\t{}\t{}\n", token.place, token.token, token.logprob);
    if (lines_.size() >= kWrittenBytes) write();
  }
  void finish() {
    if (!file_) return;
    write();
    file_->finish();
  }

 private:
  void write() {
    file_->write(lines_);
    lines_.clear();
  }

  std::optional<OutputFile> file_;
  std::string lines_;
};

std::string perplexity_text(const RunningMean& surprise, const WindowOptions& windows, const OpenEngine& engine,
                            bool json) {
  // d exp(m) = exp(m) dm
  const double perplexity = exp_f64(surprise.mean());
  const double error = perplexity * surprise.standard_error();
  if (!json)
    return fmt::format("perplexity {:.4f} +- {:.4f} over {} tokens, {}windows of {}\n", perplexity, error,
                       surprise.count(), windows.second_half ? "second halves of " : "", windows.window);
  const nlohmann::ordered_json object = {
      {"perplexity", perplexity},          {"standard_error", error},        {"mean_negative_logprob", surprise.mean()},
      {"tokens_scored", surprise.count()}, {"window", windows.window},       {"second_half", windows.second_half},
      {"model", engine.path.string()},     {"device", engine.device->name()}};
  return object.dump(2) + "\n";
}

int run_perplexity(const PerplexityFlags& flags) {
  const std::string input = read_text_file(flags.file);
  if (!flags.logprobs.empty()) check_output(flags.logprobs, flags.existing);
  EngineOptions options = engine_options(flags.engine);
  const std::int64_t asked = options.context.value_or(0);
  const WindowOptions windows =
      chosen_windows(flags, asked > 0 ? asked : load_config(find_model(options.model, options.places)).context);
  options.context = windows.window;
  Screen screen(flags.engine.verbose);
  OpenEngine engine = open_engine(options, &screen);
  engine.decoder.scored_rows = kScoredRows;
  const std::vector<TextWindow> text = read_windows(input, flags, windows, *engine.text->tokenizer);
  Batch decoder(*engine.model, engine.decoder);
  LogprobFile logprobs(flags.logprobs, flags.existing);
  const RunningMean surprise =
      measure_surprise(text, decoder, screen, [&](const CountedToken& token) { logprobs.add(token); });
  logprobs.finish();
  const std::string summary = perplexity_text(surprise, windows, engine, flags.json);
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
