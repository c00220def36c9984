#include "bench/load/load_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/untrusted_text.h"
#include "bench/figures.h"

namespace espalier {
namespace {

constexpr std::size_t kWidth = 100;

// Broken between words, or where it must be; never inside a character.
std::string wrapped(std::string_view text) {
  std::string lines;
  while (text.size() > kWidth) {
    std::size_t end = text.rfind(' ', kWidth);
    if (end == std::string_view::npos || end == 0) {
      end = kWidth;
      while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    }
    lines.append(text.substr(0, end)).append("\n");
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines.append(text).append("\n");
}

std::string number_text(double value) {
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 1000 ? 1 : 0);
}

std::string milliseconds_text(double seconds) {
  return number_text(1e3 * seconds);
}

std::string speed_text(const LoadFigures& figures) {
  if (figures.tokens_per_second.empty()) return "-";
  const Spread spread = spread_of(figures.tokens_per_second);
  return fmt::format("{} [{}, {}]", number_text(spread.median), number_text(spread.lower), number_text(spread.upper));
}

bool is_open(const LoadResult& result) {
  return !result.plan.shapes.empty() && result.plan.shapes.front().rate > 0;
}

std::string shape_text(const LoadShape& shape) {
  return shape.rate > 0 ? fmt::format("{:g}", shape.rate) : fmt::format("{}", shape.users);
}

std::string shape_words(const LoadShape& shape) {
  return shape.rate > 0 ? fmt::format("{:g} requests/s", shape.rate)
                        : fmt::format("{} user{}", shape.users, shape.users == 1 ? "" : "s");
}

// How often, how many, of what.
std::string duration_words(const LoadResult& result) {
  const LoadSettings& settings = result.plan.settings;
  if (settings.interrupt_tokens > 0) return fmt::format("until {} gaps are disturbed", settings.interrupt_gaps);
  if (settings.seconds > 0) return fmt::format("{:g} s", settings.seconds);
  return fmt::format("{} request{} {}", settings.requests, settings.requests == 1 ? "" : "s",
                     is_open(result) ? "in all" : "a user");
}

std::string settings_text(const LoadResult& result) {
  const LoadPlan& plan = result.plan;
  const bool own = plan.prompts.kind == "short" || plan.prompts.kind == "long";
  return fmt::format("{} loop, {}, {} prompts{} ({}), answers of {} tokens; {} round{}{}; seed {}",
                     is_open(result) ? "open" : "closed", duration_words(result),
                     own ? plan.prompts.kind : in_quotes(plan.prompts.kind),
                     plan.prompts.shared_prefix ? " behind a shared prefix" : "", name(plan.settings.api),
                     plan.settings.tokens, plan.rounds, plan.rounds == 1 ? "" : "s",
                     plan.targets.size() > 1 ? " in turn" : "", plan.prompts.seed);
}

std::string servers_text(const LoadResult& result) {
  std::string text;
  for (std::size_t i = 0; i < result.plan.targets.size(); ++i) {
    const LoadTarget& target = result.plan.targets[i];
    std::string line = fmt::format("[{}] {}: {}", i + 1, target.url.text(), in_quotes(target.model));
    if (!target.owner.empty()) line += fmt::format(" of {}", in_quotes(target.owner));
    if (!target.speculation.empty()) line += fmt::format(", speculation {}", in_quotes(target.speculation));
    text += wrapped(line);
  }
  return text;
}

// What the figures of one server were made of, where it could not be as it should.
std::string gap_words(const LoadResult& result) {
  std::string text = wrapped(
      "a gap is the time between two events of an answer, divided by the tokens of the later one, counted once for "
      "each "
      "token; events within 0.5 ms of each other are one");
  for (std::size_t i = 0; i < result.plan.targets.size(); ++i) {
    const auto lacks = [&](bool LoadFigures::*known) {
      return std::ranges::any_of(result.shapes, [&](const ShapeResult& shape) {
        return shape.figures[i].tokens > 0 && !(shape.figures[i].*known);
      });
    };
    if (lacks(&LoadFigures::usage_known))
      text += wrapped(fmt::format("[{}] does not say how many tokens an answer has: each event counts as one", i + 1));
    else if (lacks(&LoadFigures::tokens_known))
      text += wrapped(fmt::format(
          "[{}] does not say how many tokens an event has: all events of an answer are taken to have the same", i + 1));
  }
  return text;
}

std::string figures_row(const std::string& label, std::size_t server, const LoadFigures& figures,
                        const std::optional<double>& ratio) {
  const Percentiles& first = figures.first_token;
  const Percentiles& gap = figures.gaps.per_token;
  const auto cells = [](const Percentiles& each) {
    if (each.count == 0) return fmt::format("  {:>7} {:>7} {:>7}", "-", "-", "-");
    return fmt::format("  {:>7} {:>7} {:>7}", milliseconds_text(each.p50), milliseconds_text(each.p95),
                       milliseconds_text(each.p99));
  };
  return fmt::format("{:>5} [{}] {:>22} {:>7}{}{} {:>8}\n", label, server + 1, speed_text(figures),
                     ratio && server == 0 ? fmt::format("{:.2f}x", *ratio) : "", cells(first), cells(gap),
                     figures.requests - figures.failed);
}

std::string figures_table(const LoadResult& result) {
  std::string text = fmt::format("\n{:>5} {:<3} {:>22} {:>7}  {:>23}  {:>23} {:>8}\n", "", "", "tokens/s in all", "",
                                 "first token, ms", "gap, ms", "");
  text += fmt::format("{:>5} {:<3} {:>22} {:>7}", is_open(result) ? "req/s" : "users", "", "median [quartiles]",
                      result.plan.targets.size() > 1 ? "ratio" : "");
  for (int i = 0; i < 2; ++i) text += fmt::format("  {:>7} {:>7} {:>7}", "p50", "p95", "p99");
  text += fmt::format(" {:>8}\n", "answers");
  for (const ShapeResult& shape : result.shapes)
    for (std::size_t i = 0; i < shape.figures.size(); ++i)
      text += figures_row(i == 0 ? shape_text(shape.shape) : "", i, shape.figures[i], speed_ratio(shape));
  return text;
}

std::string gap_row(const std::string& label, const std::string& server, const char* when, const GapFigures& gaps) {
  const Percentiles& events = gaps.between_events;
  const Percentiles& tokens = gaps.per_token;
  std::string text = fmt::format("{:>5} {:<3} {:<9} {:>7}", label, server, when, events.count);
  for (const double seconds : {events.p50, events.p95, events.p99, events.most})
    text += fmt::format(" {:>7}", milliseconds_text(seconds));
  text += " ";
  for (const double seconds : {tokens.p50, tokens.p95, tokens.p99})
    text += fmt::format(" {:>7}", milliseconds_text(seconds));
  return text + "\n";
}

std::string interrupts_table(const LoadResult& result) {
  if (result.plan.settings.interrupt_tokens == 0) return "";
  std::string text =
      fmt::format("\n{:>5} {:<3} {:<9} {:>7} {:>31}  {:>23}\n", "", "", "", "", "between events, ms", "per token, ms");
  text += fmt::format("{:>5} {:<3} {:<9} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>7} {:>7} {:>7}\n", "users", "", "prompt",
                      "gaps", "p50", "p95", "p99", "most", "p50", "p95", "p99");
  std::string notes;
  for (const ShapeResult& shape : result.shapes)
    for (std::size_t i = 0; i < shape.figures.size(); ++i) {
      if (!shape.figures[i].interrupts) continue;
      const InterruptFigures& each = *shape.figures[i].interrupts;
      text += gap_row(i == 0 ? shape_text(shape.shape) : "", fmt::format("[{}]", i + 1), "none", each.calm);
      text += gap_row("", "", "arrives", each.disturbed);
      notes += wrapped(fmt::format("[{}] {}: {} prompt{} of {:.0f} tokens arrived; first token after {} ms (p50)",
                                   i + 1, shape_words(shape.shape), each.prompts, each.prompts == 1 ? "" : "s",
                                   each.prompt_tokens, milliseconds_text(each.first_token.p50)));
    }
  return text + notes;
}

std::string problems_text(const LoadResult& result) {
  std::string text;
  for (const ShapeResult& shape : result.shapes)
    for (std::size_t i = 0; i < shape.figures.size(); ++i) {
      const LoadFigures& figures = shape.figures[i];
      const std::string begin = fmt::format("[{}] {}: ", i + 1, shape_words(shape.shape));
      if (figures.failed > 0)
        text += wrapped(fmt::format("{}{} of {} requests failed, the first: {}", begin, figures.failed,
                                    figures.requests, figures.problem));
      else if (!figures.problem.empty())
        text += wrapped(begin + figures.problem);
      if (figures.short_answers > 0)
        text += wrapped(fmt::format("{}{} answers were shorter than {} tokens", begin, figures.short_answers,
                                    result.plan.settings.tokens));
    }
  return text;
}

}  // namespace

std::string load_text(const LoadResult& result) {
  std::string text = servers_text(result) + wrapped(settings_text(result)) + gap_words(result);
  if (result.interrupted) text += "interrupted: these are the figures until then\n";
  return text + figures_table(result) + interrupts_table(result) + problems_text(result);
}

}  // namespace espalier
