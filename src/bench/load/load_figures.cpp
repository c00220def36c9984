#include "bench/load/load_figures.h"

#include <algorithm>
#include <cmath>

#include "base/quantile.h"

namespace espalier {
namespace {

struct Window {
  double from = 0;
  double to = 0;
};

// While this prompt was read: until its first token, or, where it has none, its end.
Window window_of(const AnswerRecord& prompt) {
  return {prompt.sent, prompt.pieces.empty() ? prompt.ended : prompt.pieces.front().at};
}

bool touches(const AnswerGap& gap, const Window& window) {
  return gap.to > window.from && gap.from < window.to;
}

// Collects the samples of several rounds.
class FigureReader {
 public:
  explicit FigureReader(std::int64_t tokens_wanted) : wanted_(static_cast<double>(tokens_wanted)) {}

  void read(const LoadRun& round) {
    double tokens = 0;
    for (const AnswerRecord& answer : round.answers) tokens += read_answer(answer);
    if (tokens > 0 && round.seconds > 0) figures_.tokens_per_second.push_back(tokens / round.seconds);
    if (!round.interrupts.empty()) read_interrupts(round);
  }

  LoadFigures take() {
    figures_.first_token = percentiles_of(std::move(first_));
    figures_.whole_answer = percentiles_of(std::move(whole_));
    figures_.gaps = gap_figures(gaps_);
    if (figures_.interrupts) finish_interrupts(*figures_.interrupts);
    return std::move(figures_);
  }

 private:
  // Its tokens, where they count. Of an answer that we broke off everything but its end counts.
  double read_answer(const AnswerRecord& answer) {
    ++figures_.requests;
    if (!answer.problem.empty()) {
      ++figures_.failed;
      if (figures_.problem.empty()) figures_.problem = answer.problem;
      return 0;
    }
    if (answer.pieces.empty()) return 0;
    figures_.tokens += answer.tokens;
    figures_.prompt_tokens += answer.prompt_tokens;
    figures_.cached_tokens += answer.cached_tokens;
    figures_.tokens_known = figures_.tokens_known && answer.tokens_known;
    first_.push_back(first_token_seconds(answer));
    for (const AnswerGap& gap : gaps_of(answer)) gaps_.push_back(gap);
    if (answer.complete()) {
      whole_.push_back(answer.ended - answer.sent);
      figures_.usage_known = figures_.usage_known && answer.usage_known;
      figures_.short_answers += answer.tokens < wanted_;
    }
    return answer.tokens;
  }

  void read_interrupts(const LoadRun& round) {
    if (!figures_.interrupts) figures_.interrupts.emplace();
    InterruptFigures& figures = *figures_.interrupts;
    std::vector<Window> windows;
    for (const AnswerRecord& prompt : round.interrupts) {
      windows.push_back(window_of(prompt));
      ++figures.prompts;
      figures.failed += !prompt.complete();
      if (!prompt.problem.empty() && figures_.problem.empty()) figures_.problem = prompt.problem;
      if (!prompt.complete()) continue;
      interrupt_first_.push_back(first_token_seconds(prompt));
      figures.prompt_tokens += static_cast<double>(prompt.prompt_tokens);
    }
    for (const AnswerRecord& answer : round.answers)
      for (const AnswerGap& gap : gaps_of(answer)) {
        const bool disturbed = std::ranges::any_of(windows, [&](const Window& w) { return touches(gap, w); });
        (disturbed ? disturbed_ : calm_).push_back(gap);
      }
  }

  void finish_interrupts(InterruptFigures& figures) {
    if (!interrupt_first_.empty()) figures.prompt_tokens /= static_cast<double>(interrupt_first_.size());
    figures.first_token = percentiles_of(std::move(interrupt_first_));
    figures.calm = gap_figures(calm_);
    figures.disturbed = gap_figures(disturbed_);
  }

  double wanted_;
  LoadFigures figures_;
  std::vector<double> first_, whole_, interrupt_first_;
  std::vector<AnswerGap> gaps_, calm_, disturbed_;
};

}  // namespace

Percentiles percentiles_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {static_cast<std::int64_t>(samples.size()), quantile(samples, 0.5), quantile(samples, 0.95),
          quantile(samples, 0.99), samples.back()};
}

GapFigures gap_figures(std::span<const AnswerGap> gaps) {
  std::vector<double> events, tokens;
  for (const AnswerGap& gap : gaps) {
    events.push_back(gap.seconds());
    tokens.insert(tokens.end(), static_cast<std::size_t>(std::lround(gap.tokens)), gap.seconds() / gap.tokens);
  }
  return {percentiles_of(std::move(events)), percentiles_of(std::move(tokens))};
}

LoadFigures figures_of(std::span<const LoadRun> rounds, std::int64_t tokens_wanted) {
  FigureReader reader(tokens_wanted);
  for (const LoadRun& round : rounds) reader.read(round);
  return reader.take();
}

}  // namespace espalier
