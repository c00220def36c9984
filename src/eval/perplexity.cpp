#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "decode/sampler.h"

namespace espalier {
namespace {

std::vector<TextWindow> whole_windows(std::span<const TokenId> text, std::optional<TokenId> bos, std::size_t window) {
  std::vector<TokenId> tokens(text.begin(), text.end());
  if (bos) tokens.insert(tokens.begin(), *bos);
  std::vector<TextWindow> windows;
  for (std::size_t at = 0; at + window <= tokens.size(); at += window) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    windows.push_back({.tokens = {begin, begin + static_cast<std::ptrdiff_t>(window)},
                       .first_counted = window / 2 + 1,
                       .place = static_cast<std::int64_t>(at) - (bos ? 1 : 0)});
    if (bos) windows.back().tokens[0] = *bos;
  }
  return windows;
}

std::vector<TextWindow> all_windows(std::span<const TokenId> text, std::optional<TokenId> bos, std::size_t window) {
  const std::size_t before = bos ? 1 : 0, step = window - before;
  std::vector<TextWindow> windows;
  for (std::size_t at = 0; at < text.size(); at += step) {
    TextWindow one{.place = static_cast<std::int64_t>(at) - static_cast<std::int64_t>(before)};
    if (bos) one.tokens.push_back(*bos);
    const auto part = text.subspan(at, std::min(step, text.size() - at));
    one.tokens.insert(one.tokens.end(), part.begin(), part.end());
    if (one.tokens.size() > one.first_counted) windows.push_back(std::move(one));
  }
  return windows;
}

}  // namespace

std::int64_t shortest_window(const WindowOptions& options) {
  return options.second_half ? 3 : 2;
}

WindowOptions chosen_windows(const WindowOptions& asked, std::int64_t context) {
  WindowOptions windows = asked;
  if (windows.window == 0) windows.window = std::min(WindowOptions().window, context);
  const std::int64_t least = shortest_window(windows);
  if (windows.window < least || windows.window > context)
    input_error("--window: expected {} to the context of {}, got {}", least, context, windows.window);
  return windows;
}

std::vector<TextWindow> cut_windows(std::span<const TokenId> text, std::optional<TokenId> bos,
                                    const WindowOptions& options) {
  check(options.window >= shortest_window(options), "cut_windows: a window of {} tokens", options.window);
  const auto window = static_cast<std::size_t>(options.window);
  return options.second_half ? whole_windows(text, bos, window) : all_windows(text, bos, window);
}

std::vector<TextWindow> text_windows(std::string_view text, std::string_view where, const Tokenizer& tokenizer,
                                     const WindowOptions& options) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  const auto bos = tokenizer.add_bos() ? tokenizer.bos() : std::nullopt;
  const std::int64_t least = options.second_half ? options.window - (bos ? 1 : 0) : 2;
  if (std::ssize(ids) < least) input_error("{}: expected at least {} tokens, got {}", where, least, ids.size());
  return cut_windows(ids, bos, options);
}

void RunningMean::add(double value) {
  ++count_;
  const double delta = value - mean_;
  mean_ += delta / static_cast<double>(count_);
  squares_ += delta * (value - mean_);
}

double RunningMean::standard_error() const {
  if (count_ < 2) return 0;
  return std::sqrt(squares_ / static_cast<double>(count_ - 1) / static_cast<double>(count_));
}

RunningMean measure_surprise(std::span<const TextWindow> windows, Batch& decoder, Listener& listener,
                             const std::function<void(const CountedToken&)>& on_token) {
  RunningMean surprise;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const TextWindow& window = windows[i];
    decoder.score(window.tokens, [&](std::int64_t position, std::span<const float> logits) {
      const auto next = static_cast<std::size_t>(position) + 1;
      if (next < window.first_counted || next >= window.tokens.size()) return;
      const TokenLogprob found = logprobs(logits, window.tokens[next], 0).chosen;
      surprise.add(-found.logprob);
      on_token({window.place + position + 1, found.token, found.logprob});
    });
    listener.progress("scoring", static_cast<double>(i + 1) / static_cast<double>(windows.size()));
  }
  return surprise;
}

}  // namespace espalier
