#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/math.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "decode/decoder.h"

namespace espalier {
namespace {

constexpr std::int64_t kDefaultWindow = 512;
constexpr std::int64_t kScoredRows = 64;  // larger steps are hardly faster, and their logits take more memory

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  std::int64_t window = 0;  // 0: kDefaultWindow, or the context where that is less
  bool json = false;
};

// Mean and standard error of a stream of numbers (Welford).
class RunningMean {
 public:
  void add(double value) {
    ++count_;
    const double delta = value - mean_;
    mean_ += delta / static_cast<double>(count_);
    squares_ += delta * (value - mean_);
  }
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double standard_error() const {
    if (count_ < 2) return 0;
    return std::sqrt(squares_ / static_cast<double>(count_ - 1) / static_cast<double>(count_));
  }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

// Each window starts afresh with BOS (where the model has one) and scores every token but its first.
RunningMean score_windows(const OpenEngine& engine, Decoder& decoder, const std::vector<TokenId>& ids,
                          std::int64_t window) {
  const auto bos = engine.text->tokenizer->add_bos() ? engine.text->tokenizer->bos() : std::nullopt;
  const std::size_t step = static_cast<std::size_t>(window) - (bos ? 1 : 0);
  RunningMean surprise;
  for (std::size_t at = 0; at < ids.size(); at += step) {
    std::vector<TokenId> tokens;
    if (bos) tokens.push_back(*bos);
    for (std::size_t i = at; i < std::min(ids.size(), at + step); ++i) tokens.push_back(ids[i]);
    decoder.score(tokens, [&](std::int64_t position, std::span<const float> logits) {
      const auto next = static_cast<std::size_t>(position) + 1;
      if (next < tokens.size()) surprise.add(-logprobs(logits, tokens[next], 0).chosen.logprob);
    });
    engine.listener->progress("scoring",
                              std::min(1.0, static_cast<double>(at + step) / static_cast<double>(ids.size())));
  }
  return surprise;
}

int run_perplexity(const PerplexityFlags& flags) {
  const std::string input = read_text_file(flags.file);
  EngineOptions options = engine_options(flags.engine);
  const std::int64_t asked = options.context.value_or(0);
  const std::int64_t longest = asked > 0 ? asked : load_config(find_model(options.model, options.places)).context;
  const std::int64_t window = flags.window > 0 ? flags.window : std::min(kDefaultWindow, longest);
  if (window < 2 || window > longest) input_error("--window: expected 2 to the context of {}, got {}", longest, window);
  options.context = window;
  Screen screen(flags.engine.verbose);
  OpenEngine engine = open_engine(options, &screen);
  engine.decoder.scored_rows = kScoredRows;
  const std::vector<TokenId> ids = engine.text->tokenizer->encode(input);
  if (ids.size() < 2) input_error("{}: expected at least 2 tokens, got {}", flags.file, ids.size());
  Decoder decoder(*engine.model, engine.decoder);
  const RunningMean surprise = score_windows(engine, decoder, ids, window);
  // d exp(m) = exp(m) dm
  const double perplexity = exp_f64(surprise.mean());
  const double error = perplexity * surprise.standard_error();
  if (flags.json) {
    const nlohmann::ordered_json object = {
        {"perplexity", perplexity},          {"standard_error", error}, {"mean_negative_logprob", surprise.mean()},
        {"tokens_scored", surprise.count()}, {"window", window},        {"model", engine.path.string()},
        {"device", engine.device->name()}};
    print(object.dump(2) + "\n");
  } else {
    print(fmt::format("perplexity {:.4f} +- {:.4f} over {} tokens, windows of {}\n", perplexity, error,
                      surprise.count(), window));
  }
  flush_output();
  return 0;
}

}  // namespace

Command add_perplexity(CLI::App& app) {
  CLI::App* command = app.add_subcommand("perplexity", "how well the model predicts a text");
  auto flags = std::make_shared<PerplexityFlags>();
  command->add_option("FILE", flags->file, "a text file")->required();
  command
      ->add_option("--window", flags->window,
                   "tokens that see each other; without it 512, or the context if that is less")
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N");
  command->add_flag("--json", flags->json, "print one JSON object");
  add_engine_flags(*command, flags->engine);
  return [flags] { return run_perplexity(*flags); };
}

}  // namespace espalier
