#include "bench/load/load_benchmark.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "bench/figures.h"

namespace espalier {
namespace {

constexpr std::size_t kSampleCharacters = 2000;  // from which the length of a token is told
constexpr std::int64_t kWarmUpTokens = 16;
constexpr std::uint64_t kWarmUpNumber = 999'999'999;

class LoadBenchmark {
 public:
  LoadBenchmark(LoadPlan plan, const LoadPrompts& prompts, const LoadEvents& events)
      : prompts_(prompts), events_(events) {
    result_.plan = std::move(plan);
  }

  LoadResult run() {
    for (LoadTarget& target : result_.plan.targets)
      if (!result_.interrupted) warm_up(target);
    for (std::size_t i = 0; i < result_.plan.shapes.size() && !result_.interrupted; ++i) measure(i);
    return std::move(result_);
  }

 private:
  LoadPlan& plan() { return result_.plan; }

  // The first request costs what no later one does; and it tells how long a token is.
  void warm_up(LoadTarget& target) {
    if (!meet_server(target, plan().settings.patience, events_.cancelled)) {
      result_.interrupted = true;
      return;
    }
    const auto interrupt = static_cast<std::size_t>(plan().settings.interrupt_tokens);
    const LoadPrompt prompt = interrupt > 0
                                  ? prompts_.long_prompt(kWarmUpNumber, std::min(interrupt, kSampleCharacters))
                                  : prompts_.prompt(kWarmUpNumber);
    const auto answer = ask_once({target, plan().settings, prompts_}, prompt, kWarmUpTokens, events_.cancelled);
    result_.interrupted = !answer;
    if (!answer) return;
    if (!answer->complete()) device_error("{}: {}", target.url.text(), answer->problem);
    if (&target == &plan().targets.front()) measure_interrupts(prompt, *answer);
  }

  // The same characters for both servers, whatever their tokens.
  void measure_interrupts(const LoadPrompt& prompt, const AnswerRecord& answer) {
    LoadSettings& settings = plan().settings;
    if (settings.interrupt_tokens == 0) return;
    const auto characters = static_cast<double>(prompt.shared.size() + prompt.text.size());
    const double each = answer.prompt_tokens > 0 ? characters / static_cast<double>(answer.prompt_tokens) : 4;
    settings.interrupt_characters = static_cast<std::size_t>(each * static_cast<double>(settings.interrupt_tokens));
  }

  // Server by server, and in the next round the other way round.
  void measure(std::size_t shape) {
    const std::size_t servers = plan().targets.size();
    std::vector<std::vector<LoadRun>> runs(servers);
    for (int round = 0; round < plan().rounds && !result_.interrupted; ++round)
      for (std::size_t turn = 0; turn < servers && !result_.interrupted; ++turn) {
        const std::size_t server = round % 2 == 0 ? turn : servers - 1 - turn;
        show_progress(shape, round, turn);
        const std::uint64_t number =
            shape * static_cast<std::uint64_t>(plan().rounds) + static_cast<std::uint64_t>(round);
        runs[server].push_back(
            run_load({plan().targets[server], plan().settings, prompts_, plan().shapes[shape], number, server},
                     events_.cancelled));
        result_.interrupted = runs[server].back().cancelled;
      }
    ShapeResult measured{.shape = plan().shapes[shape]};
    for (const auto& rounds : runs) measured.figures.push_back(figures_of(rounds, plan().settings.tokens));
    result_.shapes.push_back(std::move(measured));
  }

  void show_progress(std::size_t shape, int round, std::size_t turn) const {
    if (!events_.progress) return;
    const auto rounds = static_cast<std::size_t>(result_.plan.rounds), servers = result_.plan.targets.size();
    const std::size_t done = (shape * rounds + static_cast<std::size_t>(round)) * servers + turn;
    events_.progress("load",
                     static_cast<double>(done) / static_cast<double>(result_.plan.shapes.size() * rounds * servers));
  }

  const LoadPrompts& prompts_;
  const LoadEvents& events_;
  LoadResult result_;
};

}  // namespace

bool LoadResult::all_failed() const {
  return std::ranges::all_of(shapes, [](const ShapeResult& shape) {
    return std::ranges::all_of(shape.figures, [](const LoadFigures& each) { return each.tokens == 0; });
  });
}

LoadResult run_load_benchmark(LoadPlan plan, const LoadPrompts& prompts, const LoadEvents& events) {
  check(!plan.targets.empty() && plan.targets.size() <= 2, "a load for {} servers", plan.targets.size());
  return LoadBenchmark(std::move(plan), prompts, events).run();
}

std::optional<double> speed_ratio(const ShapeResult& result) {
  if (result.figures.size() < 2) return std::nullopt;
  const auto& ours = result.figures[0].tokens_per_second;
  const auto& theirs = result.figures[1].tokens_per_second;
  if (ours.empty() || theirs.empty()) return std::nullopt;
  return spread_of(ours).median / spread_of(theirs).median;
}

}  // namespace espalier
