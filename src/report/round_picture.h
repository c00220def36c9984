// The picture of one round, kept while an answer is made: of the round that is asked for, else of the first of those
// that accepted most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/tree_picture.h"
#include "session/session.h"

namespace espalier {

class RoundPicture {
 public:
  // drafters: their names, by source bit. The tokenizer must outlive this.
  RoundPicture(std::optional<std::int64_t> wanted, const Tokenizer& tokenizer, std::vector<std::string> drafters)
      : wanted_(wanted), tokenizer_(tokenizer), drafters_(std::move(drafters)) {}

  // To be called with every round of the answer.
  void look(const Round& round);

  std::int64_t rounds() const { return rounds_; }  // looked at so far
  bool found() const { return picture_.has_value(); }
  // Whether the rest of the answer does not matter any more.
  bool done() const { return wanted_ && found(); }

  // With what the answer said before the round. Requires found().
  TreePicture picture(const TextResult& answer) const;

 private:
  std::optional<std::int64_t> wanted_;
  const Tokenizer& tokenizer_;
  std::vector<std::string> drafters_;
  std::int64_t rounds_ = 0;
  std::int64_t prefix_ = 0;  // committed tokens before the picture's root
  std::optional<TreePicture> picture_;
};

}  // namespace espalier
