// The turns and rounds of a trace as lines for a terminal. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "report/tree_picture.h"
#include "text/model_text.h"
#include "trace/traced_turn.h"

namespace espalier {

// Ids as text where a model's tokenizer is at hand, else as numbers.
class TraceWords {
 public:
  TraceWords() = default;
  explicit TraceWords(std::optional<ModelText> text) : text_(std::move(text)) {}

  // The bytes of a token.
  std::string operator()(std::int32_t token) const;
  // All of them on one line.
  std::string line(std::span<const std::int32_t> tokens) const;

 private:
  std::optional<ModelText> text_;
};

// A table of turns: its titles, and the line of one. index: from 1, in the order of the file.
std::string turn_titles();
std::string turn_line(std::int64_t index, const TracedTurn& turn);

// A turn with the lines of its rounds, whose texts are cut for `width` columns.
std::string turn_text(std::int64_t index, const TracedTurn& turn, const TraceWords& words, int width);

// A round with its tree. drafters: their names, by source bit.
std::string round_text(const TracedTurn& turn, const TracedRound& round, const TraceWords& words,
                       std::span<const std::string> drafters, const TerminalStyle& style);

}  // namespace espalier
