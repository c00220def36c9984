// How well a model predicts a text: exp of the mean negative log-probability of its tokens. The text is cut into
// windows that do not overlap, and each is computed alone. Cutting is a pure function; measuring uses the decoder it is
// given.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "decode/batch.h"
#include "engine/listener.h"
#include "text/tokenizer.h"

namespace espalier {

struct WindowOptions {
  std::int64_t window = 512;  // tokens that see each other
  // Count as llama.cpp's perplexity does: only tokens that have half a window before them. BOS stands before the text
  // and then in place of the first token of each window, and what does not fill a window is left out. False: BOS stands
  // before the tokens of each window, and all of them count that have one before them.
  bool second_half = false;
};

// The shortest windows in which a token counts.
std::int64_t shortest_window(const WindowOptions& options);

// What is asked for; a window of 0 is one of 512, or the context where that is less. Throws InputError naming --window
// where no window of that length fits, or counts.
WindowOptions chosen_windows(const WindowOptions& asked, std::int64_t context);

struct TextWindow {
  std::vector<TokenId> tokens = {};
  std::size_t first_counted = 1;  // tokens from here on count
  std::int64_t place = 0;         // of tokens[0] in the text, from 0; -1: a BOS before it
};

// bos: what the model wants at the beginning, if anything. Windows in which no token counts are left out.
std::vector<TextWindow> cut_windows(std::span<const TokenId> text, std::optional<TokenId> bos,
                                    const WindowOptions& options);

// Of a text as this tokenizer reads it. Throws InputError "where: ..." where it is too short.
std::vector<TextWindow> text_windows(std::string_view text, std::string_view where, const Tokenizer& tokenizer,
                                     const WindowOptions& options);

struct CountedToken {
  std::int64_t place = 0;  // in the text, from 0
  TokenId token = 0;
  double logprob = 0;  // natural
};

// Mean and standard error of a stream of numbers (Welford).
class RunningMean {
 public:
  void add(double value);
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double standard_error() const;

 private:
  std::int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;
};

// The negative log-probabilities of all tokens that count, each told to on_token in the order of the text.
RunningMean measure_surprise(std::span<const TextWindow> windows, Batch& decoder, Listener& listener,
                             const std::function<void(const CountedToken&)>& on_token);

}  // namespace espalier
