// Two answers to one prompt, without speculation and with it: where they part, by how much, and how fast each was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "session/session.h"

namespace espalier {

// Alternatives with each token of the answer without speculation, among which the other answer's token is looked for
// where near-ties may be (GenerateOptions::logprobs).
inline constexpr std::int64_t kComparedAlternatives = 20;

// What the device promises of both.
struct ComparedDevice {
  bool row_independent = true;  // else two correct answers may part in a near-tie (near_tie.h)
  bool timed = true;            // else it stands in for another, and has no speed
};

class AnswerComparison {
 public:
  // All of them must outlive this. Where near-ties may be, `plain` has kComparedAlternatives to tell them by.
  AnswerComparison(const TextResult& plain, const TextResult& drafted, const Tokenizer& tokenizer,
                   ComparedDevice device)
      : plain_(plain), drafted_(drafted), tokenizer_(tokenizer), device_(device) {}

  // The same tokens, ended for the same reason.
  bool equal() const;
  // Nothing to complain of: equal, or parted in a near-tie where that may be.
  bool holds() const { return equal() || near_tie(); }

  // One line: what differs, if anything, both speeds, accept_L.
  std::string text() const;
  // The same as an object, with both answers as answer_json() has them.
  nlohmann::ordered_json json(nlohmann::ordered_json plain, nlohmann::ordered_json drafted) const;

 private:
  std::optional<std::size_t> first_difference() const;
  std::optional<double> margin() const;
  bool near_tie() const;
  double ratio() const;
  std::string token_at(const GenerateResult& answer, std::size_t at) const;
  std::string difference() const;

  const TextResult& plain_;
  const TextResult& drafted_;
  const Tokenizer& tokenizer_;
  ComparedDevice device_;
};

}  // namespace espalier
